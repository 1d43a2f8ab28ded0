// Package script runs embedded Lua safely: it checks each script's header against its body, sends scripts as commands
// that the client may not repeat, repeats them itself where that is safe, and numbers mutating calls so that a call
// whose reply was lost is never run twice and always can be asked for its true outcome.
package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
)

//go:embed lua/*.lua
var files embed.FS

var lib = mustRead(files, "lua/lib.lua")

// The scripts that sessions themselves need.
var (
	openScript  = MustLoad(files, "lua/open.lua")
	closeScript = MustLoad(files, "lua/close.lua")
	sealScript  = MustLoad(files, "lua/seal.lua")
	trimScript  = MustLoad(files, "lua/trim.lua")
)

// Own lists the scripts of this package, for tests that check all scripts.
func Own() []*Script { return []*Script{openScript, closeScript, sealScript, trimScript} }

// A Script is one Lua file with what it uses of shared libraries before it.
type Script struct {
	Header
	source    string
	body      string
	sha       string
	libraries []string

	joined, partner *Script // see Join
}

// Load reads a script and checks its header (see [Header]) against its first line. Before its body stands what it uses of
// this package's lib.lua and the texts of more, in that order.
func Load(from fs.FS, path string, more ...string) (*Script, error) {
	body, err := fs.ReadFile(from, path)
	if err != nil {
		return nil, err
	}
	header, err := parseHeader(string(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &Script{Header: header, body: string(body), libraries: append([]string{lib}, more...)}
	s.source = withLibraries(s.body, s.libraries...)
	s.sha = digest(s.source)
	return s, nil
}

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// MustLoad is Load for package variables: a script that is not sound ends the program at its start.
func MustLoad(from fs.FS, path string, more ...string) *Script {
	s, err := Load(from, path, more...)
	if err != nil {
		panic("script: " + err.Error())
	}
	return s
}

// SHA is the script's digest as EVALSHA wants it.
func (s *Script) SHA() string { return s.sha }

// Source is the whole text that Redis gets: what the body uses of libraries, and the body.
func (s *Script) Source() string { return s.source }

// Body is the script without the library.
func (s *Script) Body() string { return s.body }

func mustRead(from fs.FS, path string) string {
	b, err := fs.ReadFile(from, path)
	if err != nil {
		panic("script: " + err.Error())
	}
	return string(b)
}
