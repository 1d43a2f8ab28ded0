package archtest

import (
	"slices"
	"strings"
)

// readCommands are the Redis commands that change nothing. Every other one counts as a write.
var readCommands = []string{
	"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "HSTRLEN", "LLEN", "LRANGE", "SCARD", "STRLEN", "TIME",
	"TYPE", "ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYSCORE", "ZRANK", "ZSCORE",
}

// A luaCall is one call of a function by its name, as call('HSET', …) or session_store(…).
type luaCall struct {
	function string
	at       int          // index of the function's name among the tokens
	end      int          // index of the closing bracket
	args     [][]luaToken // what stands between the commas
}

// findCalls lists the calls of named functions, outer before inner. redis.call and redis.pcall are called call.
func findCalls(tokens []luaToken) []luaCall {
	var calls []luaCall
	for i := 0; i+1 < len(tokens); i++ {
		if !tokens[i].name() || tokens[i+1].str || tokens[i+1].text != "(" || luaKeyword(tokens[i].text) {
			continue
		}
		if i > 0 && !tokens[i-1].str && tokens[i-1].text == "function" {
			continue // its definition
		}
		c := luaCall{function: tokens[i].text, at: i}
		if c.function == "pcall" && i >= 2 && tokens[i-2].text == "redis" {
			c.function = "call"
		}
		c.args, c.end = arguments(tokens, i+1)
		calls = append(calls, c)
	}
	return calls
}

func luaKeyword(word string) bool {
	return slices.Contains([]string{"and", "or", "not", "if", "elseif", "while", "until", "return", "in", "function"}, word)
}

// arguments splits what is between the bracket at open and its partner.
func arguments(tokens []luaToken, open int) (args [][]luaToken, end int) {
	inside := tokens[open].nested + 1
	start := open + 1
	for i := start; i < len(tokens); i++ {
		closes := !tokens[i].str && tokens[i].text == ")" && tokens[i].nested == inside-1
		comma := !tokens[i].str && tokens[i].text == "," && tokens[i].nested == inside
		if (closes && i > start) || comma {
			args = append(args, tokens[start:i])
			start = i + 1
		}
		if closes {
			return args, i
		}
	}
	return args, len(tokens)
}

// A luaFunction is what is known of a function of the libraries or of the script itself.
type luaFunction struct {
	keys   map[int]bool // which parameters are used as keys
	writes bool
}

// A luaDefinition is where a function stands.
type luaDefinition struct {
	name       string
	params     []string
	start, end int // of its body among the tokens
}

func findDefinitions(tokens []luaToken) []luaDefinition {
	var found []luaDefinition
	for i := 0; i+2 < len(tokens); i++ {
		if tokens[i].str || tokens[i].text != "function" || !tokens[i+1].name() {
			continue
		}
		args, end := arguments(tokens, i+2)
		def := luaDefinition{name: tokens[i+1].text, start: end + 1, end: len(tokens)}
		for _, arg := range args {
			def.params = append(def.params, arg[0].text)
		}
		for j := def.start; j < len(tokens); j++ {
			if tokens[j].depth == tokens[i].depth {
				def.end = j
				break
			}
		}
		found = append(found, def)
	}
	return found
}

// learnFunctions finds out what the functions defined in tokens do with their parameters. It repeats until nothing new
// is found, since they call each other.
func learnFunctions(tokens []luaToken) map[string]*luaFunction {
	known := map[string]*luaFunction{}
	definitions := findDefinitions(tokens)
	for _, def := range definitions {
		known[def.name] = &luaFunction{keys: map[int]bool{}}
	}
	for changed := true; changed; {
		changed = false
		for _, def := range definitions {
			fn := known[def.name]
			for _, c := range findCalls(tokens[def.start:def.end]) {
				if c.writes(known) && !fn.writes {
					fn.writes, changed = true, true
				}
				for _, key := range c.keys(known) {
					if at := slices.Index(def.params, soleName(key)); at >= 0 && !fn.keys[at] {
						fn.keys[at], changed = true, true
					}
				}
			}
		}
	}
	return known
}

// command is the Redis command that a call runs: "" if it is none, "?" if it is named by a variable.
func (c luaCall) command() string {
	if c.function != "call" || len(c.args) == 0 {
		return ""
	}
	if first := c.args[0]; len(first) == 1 && first[0].str {
		return strings.ToUpper(first[0].text)
	}
	return "?"
}

// writes reports whether a call may change a key.
func (c luaCall) writes(known map[string]*luaFunction) bool {
	if command := c.command(); command != "" {
		return !slices.Contains(readCommands, command)
	}
	fn := known[c.function]
	return fn != nil && fn.writes
}

// keys returns the arguments of a call that are used as keys.
func (c luaCall) keys(known map[string]*luaFunction) [][]luaToken {
	if command := c.command(); command != "" {
		if command == "TIME" || len(c.args) < 2 {
			return nil
		}
		return c.args[1:2]
	}
	var keys [][]luaToken
	if fn := known[c.function]; fn != nil {
		for i, arg := range c.args {
			if fn.keys[i] {
				keys = append(keys, arg)
			}
		}
	}
	return keys
}

// soleName returns the name that an argument consists of, "" where it is anything else.
func soleName(arg []luaToken) string {
	if len(arg) == 1 && arg[0].name() {
		return arg[0].text
	}
	return ""
}
