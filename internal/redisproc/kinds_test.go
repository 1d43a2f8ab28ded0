package redisproc

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSentinelKeepsItsConfigurationOverARestart(t *testing.T) {
	t.Parallel()
	primary := start(t, nil)
	_, port := splitAddr(t, primary.Addr())
	s := start(t, &Options{Sentinel: []string{"monitor main 127.0.0.1 " + port + " 1"}})
	assert.Contains(t, mustAsk(t, s, "INFO", "server"), "redis_mode:sentinel")
	assert.Contains(t, mustAsk(t, s, "INFO", "sentinel"), "name=main")
	assert.Empty(t, s.TLSAddr())
	before, err := os.ReadFile(filepath.Join(s.Dir(), sentinelFile))
	require.NoError(t, err)
	assert.Contains(t, string(before), "sentinel myid", "it rewrites the file")
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart(t.Context()))
	assert.Contains(t, mustAsk(t, s, "INFO", "sentinel"), "name=main")
}

func TestStartThatCannotReadItsCertificateShowsTheLog(t *testing.T) {
	t.Parallel()
	needRedis(t)
	none := filepath.Join(t.TempDir(), "none.pem")
	_, err := Start(t.Context(), &Options{TLS: &TLS{CertFile: none, KeyFile: none, CAFile: none}})
	assert.ErrorContains(t, err, "Failed to")
	assert.ErrorContains(t, err, "none.pem")
}

func splitAddr(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}
