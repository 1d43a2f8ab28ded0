package netfault

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// values are complete values of the protocol.
var values = []string{
	"+OK\r\n",
	"+\r\n",
	"-ERR " + strings.Repeat("long ", 50) + "\r\n",
	":-12\r\n",
	"$-1\r\n", "$0\r\n\r\n", "$5\r\n*1\r\n \r\n", "$12\r\n>2\r\n+a\r\n+b\r\n\r\n",
	"*-1\r\n", "*0\r\n", "*2\r\n$1\r\na\r\n:1\r\n",
	"*3\r\n*2\r\n*0\r\n*1\r\n+x\r\n$-1\r\n*-1\r\n",
	"_\r\n", "#t\r\n", ",-1.5e9\r\n", ",inf\r\n",
	"(" + strings.Repeat("1234567890", 8) + "\r\n",
	"!11\r\nERR  \r\nboom\r\n", "=7\r\ntxt:a\r\n\r\n",
	"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:2\r\n:3\r\n", "%0\r\n",
	"~3\r\n+a\r\n+b\r\n%1\r\n+c\r\n~0\r\n",
	"|1\r\n+ttl\r\n:5\r\n+OK\r\n",
	"|1\r\n+k\r\n%1\r\n+a\r\n:1\r\n*2\r\n:1\r\n|1\r\n+x\r\n+y\r\n:2\r\n",
	"|0\r\n:1\r\n",
	">2\r\n+message\r\n*2\r\n+a\r\n+b\r\n", ">0\r\n",
	strings.Repeat("*1\r\n", 200) + ":1\r\n",
}

func TestScannerFindsTheEndOfEveryValueHoweverItIsSplit(t *testing.T) {
	t.Parallel()
	stream := strings.Join(values, "")
	for size := 1; size < 40; size++ {
		var s scanner
		var got []string
		var present strings.Builder
		for at := 0; at < len(stream); at += size {
			piece := []byte(stream[at:min(at+size, len(stream))])
			for len(piece) > 0 {
				assert.Equal(t, present.Len() == 0, s.fresh())
				n, done, err := s.next(piece)
				require.NoError(t, err)
				present.Write(piece[:n])
				piece = piece[n:]
				if !done {
					require.Empty(t, piece, "what is not complete takes all")
					continue
				}
				value := present.String()
				assert.Equal(t, value[0] == '>', s.wasPush(), "%q", value)
				got = append(got, value)
				present.Reset()
			}
		}
		require.Equal(t, values, got, "pieces of %d bytes", size)
		require.True(t, s.fresh())
	}
}

func TestScannerRefusesWhatBeginsNoValue(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"PING\r\n", "\r\n", "\n", "$x\r\n", "$\r\n", "*1a\r\n", "*9999999999999999999\r\n", "$--1\r\n", "*2\r\n+a\r\nx\r\n",
		"*?\r\n", "$?\r\n",
	} {
		_, _, err := new(scanner).next([]byte(bad))
		assert.Error(t, err, "%q", bad)
	}
}

func TestArgumentsAreTheFirstOnesAndCut(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"set", "k", "v"}, arguments(command("set k v"), maxArgs))
	assert.Equal(t, []string{"set"}, arguments(command("set k v"), 1))
	assert.Equal(t, []string{"a", ""}, arguments([]byte("*2\r\n$1\r\na\r\n$0\r\n\r\n"), maxArgs))
	assert.Equal(t, []string{strings.Repeat("x", maxArgBytes), "y"}, arguments(command(strings.Repeat("x", 5000)+" y"), maxArgs))
	assert.Len(t, arguments(command(strings.Repeat("x ", 500)), maxArgs), maxArgs)
	assert.Empty(t, arguments([]byte("*0\r\n"), maxArgs))
	assert.Empty(t, arguments([]byte("*-1\r\n"), maxArgs))
	assert.Empty(t, arguments([]byte("+PING\r\n"), maxArgs))
	assert.Equal(t, []string{"a"}, arguments([]byte("*2\r\n$1\r\na\r\n:1\r\n"), maxArgs), "what is no bulk string ends it")
}

func FuzzScanner(f *testing.F) {
	for _, value := range values {
		f.Add([]byte(value), uint8(3))
	}
	f.Add([]byte("*1\r\nboom"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		whole, wholeErr := ends(stream, len(stream)+1)
		pieces, piecesErr := ends(stream, int(size)+1)
		if wholeErr != piecesErr {
			t.Fatalf("error %v in one piece, %v in pieces of %d", wholeErr, piecesErr, size)
		}
		assert.Equal(t, whole, pieces)
		_ = arguments(stream, maxArgs)
	})
}

// ends returns where the values of a stream end, read in pieces of a size, and whether it holds an error.
func ends(stream []byte, size int) (at []int, failed bool) {
	var s scanner
	for begin := 0; begin < len(stream); begin += size {
		piece := stream[begin:min(begin+size, len(stream))]
		for pos := 0; pos < len(piece); {
			n, done, err := s.next(piece[pos:])
			pos += n
			if err != nil {
				return at, true
			}
			if done {
				s.wasPush()
				at = append(at, begin+pos)
			}
		}
	}
	return at, false
}
