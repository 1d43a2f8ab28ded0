package archtest

import (
	"fmt"
	"slices"

	"github.com/leaseq/leaseq/internal/script"
)

// recordTable is the table of a script's records.
const recordTable = "records"

// keyNames finds the names in a script that hold keys: those of its header, what stands in a table of such names or in
// that of the records, and loop variables over one. The tables are returned, too.
func keyNames(tokens []luaToken, header script.Header) (keys, tables map[string]bool) {
	keys, tables = map[string]bool{}, map[string]bool{}
	for _, name := range header.Keys {
		keys[name] = true
	}
	if header.Records {
		tables[recordTable] = true
	}
	for known := -1; known != len(keys)+len(tables); {
		known = len(keys) + len(tables)
		for _, a := range assignments(tokens) {
			if a.name == "" {
				continue
			}
			switch rest, ok := keyTable(a.value, keys, tables); {
			case ok && a.loop:
				keys[a.name] = true
			case ok && len(rest) == 0:
				tables[a.name] = true
			case ok && rest[0].text == "[":
				keys[a.name] = true
			}
		}
	}
	return keys, tables
}

// An assignment gives one name its value; or, with loop, the elements of the table that is its value.
type assignment struct {
	name  string
	value []luaToken
	loop  bool
	line  int
}

// assignments lists `local a, b = x, y`, `a = x` and the second variable of `for _, a in ipairs(x)`.
func assignments(tokens []luaToken) []assignment {
	var found []assignment
	for i, t := range tokens {
		switch {
		case t.str:
		case t.text == "=" && i > 0 && tokens[i-1].name():
			names := []string{}
			for j := i - 1; j >= 0 && tokens[j].name(); j -= 2 {
				names = append([]string{tokens[j].text}, names...)
				if j == 0 || tokens[j-1].str || tokens[j-1].text != "," || t.nested != tokens[j-1].nested {
					break
				}
			}
			if t.nested > 0 {
				continue // a field of a table
			}
			values := expressions(tokens, i+1)
			for n, name := range names {
				a := assignment{name: name, line: t.line}
				if n < len(values) {
					a.value = values[n]
				}
				found = append(found, a)
			}
		case t.text == "in" && i+2 < len(tokens) && tokens[i+1].text == "ipairs" && tokens[i-1].name():
			args, _ := arguments(tokens, i+2)
			if len(args) == 1 {
				found = append(found, assignment{name: tokens[i-1].text, value: args[0], loop: true, line: t.line})
			}
		}
	}
	return found
}

// expressions splits what stands right of an assignment: up to the end of the line on which all brackets are closed.
func expressions(tokens []luaToken, start int) [][]luaToken {
	var out [][]luaToken
	base := 0
	if start < len(tokens) {
		base = tokens[start].nested
	}
	i := start
	for from := start; i <= len(tokens); i++ {
		over := i == len(tokens) || (i > start && tokens[i].line > tokens[i-1].line && tokens[i].nested == base && tokens[i-1].text != ",")
		if over || (!tokens[i].str && tokens[i].text == "," && tokens[i].nested == base) {
			out = append(out, tokens[from:i])
			from = i + 1
		}
		if over {
			break
		}
	}
	return out
}

// keyTable reports whether an expression begins with a table of keys, written out or by its name, and returns what
// follows that.
func keyTable(value []luaToken, keys, tables map[string]bool) (rest []luaToken, ok bool) {
	if len(value) > 0 && tables[value[0].text] && !value[0].str {
		return value[1:], true
	}
	open := 0
	for open < len(value) && value[open].text == "(" {
		open++
	}
	if open >= len(value) || value[open].str || value[open].text != "{" {
		return nil, false
	}
	for i := open + 1; i < len(value); i++ {
		switch t := value[i]; {
		case !t.str && t.text == "}" && i == open+1:
			return nil, false
		case !t.str && t.text == "}":
			i++
			for ; open > 0 && i < len(value) && value[i].text == ")"; i++ {
				open--
			}
			return value[i:], true
		case !t.str && (t.text == "," || t.text == "="):
		case t.name() && (keys[t.text] || (i+1 < len(value) && value[i+1].text == "=")):
		default:
			return nil, false
		}
	}
	return nil, false
}

// checkLuaKeys returns every key of a call that is not a name out of KEYS (or, in a function, one of its parameters),
// and every such name that is given another value.
func checkLuaKeys(tokens []luaToken, header script.Header, known map[string]*luaFunction) []string {
	var bad []string
	keys, tables := keyNames(tokens, header)
	definitions := findDefinitions(tokens)
	for _, c := range findCalls(tokens) {
		for _, key := range c.keys(known) {
			name := soleName(key)
			if !keys[name] && !isParameter(definitions, c.at, name) {
				bad = append(bad, fmt.Sprintf("line %d: the key of %s is `%s`: want a name out of KEYS", tokens[c.at].line, c.title(), textOf(key)))
			}
		}
	}
	for i, a := range assignments(tokens) {
		if header.Records && a.name == recordTable && i != len(header.Keys) { // those of the first line come before it
			bad = append(bad, fmt.Sprintf("line %d: %s are bound in the second line only", a.line, recordTable))
		}
		if !keys[a.name] || a.name == "" {
			continue
		}
		if _, ok := keyTable(a.value, keys, tables); !ok && textOf(a.value) != "unpack ( KEYS )" && len(a.value) > 0 {
			bad = append(bad, fmt.Sprintf("line %d: %s holds a key and is given `%s`", a.line, a.name, textOf(a.value)))
		}
	}
	return bad
}

func isParameter(definitions []luaDefinition, at int, name string) bool {
	return name != "" && slices.ContainsFunc(definitions, func(d luaDefinition) bool {
		return d.start <= at && at < d.end && slices.Contains(d.params, name)
	})
}

func (c luaCall) title() string {
	if command := c.command(); command != "" {
		return command
	}
	return c.function
}

// textOf writes tokens with one blank between them.
func textOf(tokens []luaToken) string {
	text := ""
	for i, t := range tokens {
		if i > 0 {
			text += " "
		}
		if t.str {
			text += "'" + t.text + "'"
		} else {
			text += t.text
		}
	}
	return text
}
