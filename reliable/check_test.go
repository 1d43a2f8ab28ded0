package reliable_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/internal/redistest"
	"github.com/leaseq/leaseq/reliable"
)

func TestCheckRefusesWhatEnqueueRefusesAndSendsNothing(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	q, err := reliable.New(rdb, "checked", &reliable.QueueOptions{PayloadLimit: 10})
	require.NoError(t, err)
	require.NoError(t, q.Check(reliable.Item{Kind: "k", Payload: []byte("0123456789"), ID: "x", Delay: time.Hour}))
	require.NoError(t, q.Check(reliable.Item{Kind: "k"}))
	for _, item := range []reliable.Item{
		{}, {Kind: "no blanks"}, {Kind: "k", ID: "\x00"}, {Kind: "k", Delay: -1}, {Kind: "k", Delay: 1, At: time.Now()},
		{Kind: "k", Payload: []byte("01234567890")}, {Kind: "k", MaxRetries: new(-1)},
		{Kind: "k", Headers: map[string]string{"h": strings.Repeat("x", 5000)}},
	} {
		err := q.Check(item)
		require.Error(t, err)
		results, _ := q.EnqueueMany(t.Context(), []reliable.Item{item})
		require.Error(t, results[0].Err)
		if item.ID != "" {
			assert.Equal(t, results[0].Err.Error(), err.Error())
		}
	}
	assert.Empty(t, rdb.Keys(t.Context(), "*").Val())
	require.NoError(t, q.Close(t.Context()))
}
