package script

import (
	"regexp"
	"strings"
)

var (
	luaWord    = regexp.MustCompile(`[A-Za-z_]\w*`)
	luaDefines = regexp.MustCompile(`^local (?:function )?(\w+)`)
	luaComment = regexp.MustCompile(`(?m)(^|\s)--.*$`)
)

// A definition is one local of a library's top level, without the comment before it.
type definition struct{ name, text string }

// definitions cuts a library at the lines that begin a local of the top level, or a comment of it.
func definitions(library string) (all []definition) {
	inside := false
	for line := range strings.Lines(library) {
		if match := luaDefines.FindStringSubmatch(line); match != nil {
			all, inside = append(all, definition{name: match[1]}), true
		} else if strings.HasPrefix(line, "--") {
			inside = false
		}
		if inside {
			all[len(all)-1].text += line
		}
	}
	return all
}

// needed is what a body uses of libraries, directly or through what it uses: Redis makes every local of a script anew
// at each call, so that what nobody uses is paid for a thousand times a second.
func needed(body string, libraries ...string) string {
	var all []definition
	for _, library := range libraries {
		all = append(all, definitions(library)...)
	}
	used := map[string]bool{}
	use := func(text string) {
		for _, word := range luaWord.FindAllString(luaComment.ReplaceAllString(text, ""), -1) {
			used[word] = true
		}
	}
	use(body)
	var kept []string
	for i := len(all) - 1; i >= 0; i-- { // what a definition uses stands before it
		if used[all[i].name] {
			use(all[i].text)
			kept = append(kept, all[i].text)
		}
	}
	var out strings.Builder
	for i := len(kept) - 1; i >= 0; i-- {
		out.WriteString(kept[i])
	}
	return out.String()
}
