package script

import (
	"maps"
	"slices"
	"strings"
)

// A definition is one local of a library's top level, without the comment before it.
type definition struct{ name, text string }

// definitions cuts a library at the lines that begin a local of the top level, or a comment of it.
func definitions(library string) (all []definition) {
	inside := false
	begin, end := 0, 0
	for line := range strings.Lines(library) {
		if name := defined(line); name != "" {
			all, inside, begin = append(all, definition{name: name}), true, end
		} else if strings.HasPrefix(line, "--") {
			inside = false
		}
		end += len(line)
		if inside {
			all[len(all)-1].text = library[begin:end]
		}
	}
	return all
}

// defined is the name that a line gives to a local of the top level, or "".
func defined(line string) string {
	rest, local := strings.CutPrefix(line, "local ")
	if !local {
		return ""
	}
	rest = strings.TrimPrefix(rest, "function ")
	n := 0
	for n < len(rest) && inWord(rest[n]) {
		n++
	}
	return rest[:n]
}

// withLibraries puts before a body what it uses of libraries, directly or through what it uses: Redis makes every local of
// a script anew at each call, so that what nobody uses is paid for a thousand times a second. What only rare functions use
// is put into these, and is made where one is called.
//
// All scripts are loaded whenever a program starts that imports this module, so this looks at each byte once, by hand:
// regular expressions took most of a start, a tenth of a second where several processes start at once.
func withLibraries(body string, libraries ...string) string {
	var all []definition
	for _, library := range libraries {
		all = append(all, definitions(library)...)
	}
	parts := split(body)
	var often strings.Builder
	for _, part := range parts {
		if part.head == "" {
			often.WriteString(part.text)
		}
	}
	always := map[string]bool{}
	var out strings.Builder
	out.WriteString(needed(often.String(), all, always))
	for _, part := range parts {
		out.WriteString(part.head)
		if part.head != "" {
			out.WriteString(needed(part.text, all, maps.Clone(always)))
		}
		out.WriteString(part.text)
	}
	return out.String()
}

// A part of a body is a rare function, with its first line as the head, or what stands before, between or behind these.
type part struct{ head, text string }

// split cuts out the functions of a body's top level whose first line says that they are rarely called.
func split(body string) []part {
	parts := []part{{}}
	for line := range strings.Lines(body) {
		last := &parts[len(parts)-1]
		if strings.HasPrefix(line, "local function ") && strings.HasSuffix(line, ") -- rare\n") {
			parts = append(parts, part{head: line})
			continue
		}
		last.text += line
		if last.head != "" && line == "end\n" {
			parts = append(parts, part{})
		}
	}
	return parts
}

// needed are the definitions that a text uses, directly or through what it uses. What is in has is there already; they are
// added to it.
func needed(text string, all []definition, has map[string]bool) string {
	used := make(map[string]bool, len(all))
	for _, d := range all {
		used[d.name] = false
	}
	markUsed(used, text)
	var kept []string
	for i := len(all) - 1; i >= 0; i-- { // what a definition uses stands before it
		if name := all[i].name; used[name] && !has[name] {
			has[name] = true
			markUsed(used, all[i].text)
			kept = append(kept, all[i].text)
		}
	}
	slices.Reverse(kept)
	return strings.Join(kept, "")
}

// markUsed sets the names that stand in a text, outside of its comments: from a -- behind a blank, or at the head of a
// line, to the line's end.
func markUsed(names map[string]bool, text string) {
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '-' && strings.HasPrefix(text[i:], "--") && (i == 0 || strings.IndexByte(" \t\r\n\f", text[i-1]) >= 0):
			n := strings.IndexByte(text[i:], '\n')
			if n < 0 {
				return
			}
			i += n
		case !inWord(c) || c >= '0' && c <= '9':
			i++
		default:
			begin := i
			for i < len(text) && inWord(text[i]) {
				i++
			}
			if word := text[begin:i]; !names[word] {
				if _, known := names[word]; known {
					names[word] = true
				}
			}
		}
	}
}

// inWord reports whether a byte can be in a name of Lua's.
func inWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
