package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServersBelow62AreTooOld(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.8.24": true, "5.0.14": true, "6.0.16": true, "6.2.0": false, "6.10.1": false, "7.0.15": false, "8.2.1": false,
		"": false, "unstable": false, "255.255.255": false,
	} {
		assert.Equal(t, want, tooOld(version), version)
	}
}

func TestGivenServerThatCannotBeUsedIsRefusedWithoutShowingThePassword(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"no URL":           "s3cret@127.0.0.1:6379",
		"wrong scheme":     "http://user:s3cret@127.0.0.1:6379",
		"wrong escape":     "redis://user:s3cret%zz@127.0.0.1:6379",
		"nobody is there":  "redis://user:s3cret@127.0.0.1:1/0",
		"no such database": "redis://user:6379/s3cret@127.0.0.1:6379",
		"a Sentinel":       "redis://user:s3cret@127.0.0.1:6379/0?master_name=s3cret",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, live page
			o := options{redis: url, temp: t.TempDir()}
			err := run(t.Context(), &o, &out, &live)
			require.ErrorContains(t, err, "--redis")
			assert.NotContains(t, err.Error()+out.String()+live.String(), "s3cret")
		})
	}
}

func TestTwoServersAtATimeAreRefused(t *testing.T) {
	t.Parallel()
	var out page
	err := run(t.Context(), &options{redis: "redis://127.0.0.1:6379", miniredis: true, temp: t.TempDir()}, &out, &out)
	assert.ErrorContains(t, err, "want one of them")
}
