package archtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/leaseq/leaseq/internal/script"
)

// bannedLua are names that no script uses: what Redis, Valkey and miniredis do not all offer, what parses a user's
// bytes, what makes an answer an error, and what reads keys or calls Redis past the library.
var bannedLua = []string{
	"cjson", "cmsgpack", "struct", "bit", "redis", "pcall", "xpcall", "error", "assert", "loadstring", "load", "dofile", "require", "random",
}

// CheckLua returns every rule that a script breaks: libraries is the text that is put before it.
func CheckLua(libraries string, header script.Header, body string) []string {
	lib, err := lexLua(libraries)
	if err != nil {
		return []string{"library: " + err.Error()}
	}
	tokens, err := lexLua(body)
	if err != nil {
		return []string{err.Error()}
	}
	known := learnFunctions(slices.Concat(lib, tokens))
	s := luaScript{header: header, tokens: tokens, known: known}
	for _, c := range findCalls(tokens) {
		if c.writes(known) && !within(findDefinitions(tokens), c.at) {
			s.writes = append(s.writes, c)
		}
	}
	bad := s.checkWords()
	bad = append(bad, checkLuaKeys(tokens, header, known)...)
	bad = append(bad, s.checkFirstWrite()...)
	if header.Numbered() {
		bad = append(bad, s.checkSession()...)
	}
	return bad
}

// CheckLuaLibrary returns what a library does that no script may: its own functions get keys as parameters.
func CheckLuaLibrary(text string) []string {
	tokens, err := lexLua(text)
	if err != nil {
		return []string{err.Error()}
	}
	return checkLuaKeys(tokens, script.Header{}, learnFunctions(tokens))
}

type luaScript struct {
	header script.Header
	tokens []luaToken
	known  map[string]*luaFunction
	writes []luaCall // in the order in which they stand, those inside of functions left out
}

func within(definitions []luaDefinition, at int) bool {
	return slices.ContainsFunc(definitions, func(d luaDefinition) bool { return d.start <= at && at < d.end })
}

// head is how many tokens the first line of code has, `local … = unpack(KEYS)`, and the second one where it binds records,
// `local records = {unpack(KEYS, n)}`. That they are so was checked when the script was loaded.
func (s *luaScript) head() int {
	n := 2*len(s.header.Keys) + 5
	if s.header.Records {
		n += 11
	}
	return n
}

func (s *luaScript) checkWords() []string {
	var bad []string
	clocks := 0
	for i, t := range s.tokens {
		switch {
		case t.str && isKeyPart(t.text):
			bad = append(bad, fmt.Sprintf("line %d: '%s' looks like a part of a key", t.line, t.text))
		case t.str && t.text == "TIME":
			bad = append(bad, fmt.Sprintf("line %d: the clock is read by now_us only", t.line))
		case t.str:
		case t.text == "KEYS" && i >= s.head():
			bad = append(bad, fmt.Sprintf("line %d: KEYS is read in the first line only, or in the second for records", t.line))
		case t.text == "now_us":
			clocks++
		case slices.Contains(bannedLua, t.text):
			bad = append(bad, fmt.Sprintf("line %d: %s is used by no script", t.line, t.text))
		}
	}
	if clocks > 1 {
		bad = append(bad, fmt.Sprintf("the clock is read %d times: want once", clocks))
	}
	return bad
}

// firstWrite is how every script that writes begins: Redis judges by the first write whether a script may run while
// memory is full, and this one frees memory.
const firstWrite = "call ( 'HDEL' , sessions , '' )"

// creators are the scripts that make jobs, which must be refused where memory is full.
var creators = []string{"enqueue", "import"}

func (s *luaScript) checkFirstWrite() []string {
	switch {
	case slices.Contains(creators, s.header.Name):
		return s.checkCreator()
	case len(s.writes) == 0:
		return nil
	}
	if got := s.text(s.head(), 8); got != firstWrite {
		return []string{fmt.Sprintf("after its first line it has `%s`: want `%s`", got, firstWrite)}
	}
	return nil
}

// checkCreator requires that the HSET of jobs is the first write of the script, and of each function of its own that writes:
// by itself, or in the function that is called first.
func (s *luaScript) checkCreator() []string {
	creates := map[string]bool{} // functions of the script that begin with it
	first := func(writes []luaCall) bool {
		return len(writes) > 0 &&
			(writes[0].command() == "HSET" && textOf(writes[0].args[1]) == "jobs" || creates[writes[0].function])
	}
	ok := true
	for _, def := range findDefinitions(s.tokens) { // a function is defined before it is called
		writes := slices.DeleteFunc(findCalls(s.tokens[def.start:def.end]), func(c luaCall) bool { return !c.writes(s.known) })
		creates[def.name] = first(writes)
		ok = ok && (len(writes) == 0 || creates[def.name])
	}
	if !ok || !first(s.writes) {
		return []string{"the first write is not the HSET of jobs, which must be refused where memory is full"}
	}
	return nil
}

// text writes n tokens from a place on.
func (s *luaScript) text(from, n int) string {
	from = min(from, len(s.tokens))
	return textOf(s.tokens[from:min(from+n, len(s.tokens))])
}

// How every numbered script begins; an answer is all that session_check needs to give where the call is not to run.
var sessionChecks = []string{
	"local answer = session_check ( sessions , ARGV [ 1 ] , ARGV [ 2 ] ) if answer then return answer end",
	"local answer , rest = session_check ( sessions , ARGV [ 1 ] , ARGV [ 2 ] ) if answer then return answer end",
}

func (s *luaScript) checkSession() []string {
	start := s.head()
	if !slices.Contains(creators, s.header.Name) {
		start += 8
	}
	checked := -1
	for _, check := range sessionChecks {
		if n := len(strings.Fields(check)); s.text(start, n) == check {
			checked = start + n
		}
	}
	if checked < 0 {
		return []string{"its first step is not session_check: " + s.text(start, 24)}
	}
	var bad []string
	stores := map[int]bool{} // ends of session_store's calls
	for i, c := range s.writes {
		if c.function == "session_store" {
			stores[c.end] = true
		} else if i == len(s.writes)-1 {
			bad = append(bad, fmt.Sprintf("line %d: %s is the last write: want session_store", s.tokens[c.at].line, c.title()))
		}
	}
	if len(stores) == 0 {
		bad = append(bad, "nothing is stored for the session")
	}
	for i := checked; i < len(s.tokens); i++ {
		if t := s.tokens[i]; !t.str && t.text == "return" && t.depth == 0 && !stores[i-1] {
			bad = append(bad, fmt.Sprintf("line %d: a return without a session_store just before it", t.line))
		}
	}
	if last := s.tokens[len(s.tokens)-1]; last.depth != 0 || !s.returnsAtEnd() {
		bad = append(bad, "the script does not end with a return")
	}
	return bad
}

// returnsAtEnd reports whether the last statement at the outermost level is a return.
func (s *luaScript) returnsAtEnd() bool {
	blocks := 0
	ends := false
	for _, t := range s.tokens {
		if t.str {
			continue
		}
		switch t.text {
		case "function", "if", "do", "repeat":
			blocks++
		case "end", "until":
			blocks--
			ends = false
		case "return":
			ends = blocks == 0
		}
	}
	return ends
}
