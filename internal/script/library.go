package script

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	luaWord    = regexp.MustCompile(`[A-Za-z_]\w*`)
	luaDefines = regexp.MustCompile(`^local (?:function )?(\w+)`)
	luaComment = regexp.MustCompile(`(?m)(^|\s)--.*$`)

	// luaRare is a function of a body's top level whose first line says that it is rarely called.
	luaRare = regexp.MustCompile(`(?ms)^(local function \w+\([^)\n]*\) -- rare\n)(.*?)^end\n`)
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

// withLibraries puts before a body what it uses of libraries, directly or through what it uses: Redis makes every local of
// a script anew at each call, so that what nobody uses is paid for a thousand times a second. What only rare functions use
// is put into these, and is made where one is called.
func withLibraries(body string, libraries ...string) string {
	var all []definition
	for _, library := range libraries {
		all = append(all, definitions(library)...)
	}
	always := map[string]bool{}
	top := needed(luaRare.ReplaceAllString(body, ""), all, always)
	return top + luaRare.ReplaceAllStringFunc(body, func(text string) string {
		parts := luaRare.FindStringSubmatch(text)
		return parts[1] + needed(text, all, maps.Clone(always)) + parts[2] + "end\n"
	})
}

// needed are the definitions that a text uses. There already is what is in has, to which they are added.
func needed(text string, all []definition, has map[string]bool) string {
	used := map[string]bool{}
	use := func(text string) {
		for _, word := range luaWord.FindAllString(luaComment.ReplaceAllString(text, ""), -1) {
			used[word] = true
		}
	}
	use(text)
	var kept []string
	for i := len(all) - 1; i >= 0; i-- { // what a definition uses stands before it
		if name := all[i].name; used[name] && !has[name] {
			has[name] = true
			use(all[i].text)
			kept = append(kept, all[i].text)
		}
	}
	slices.Reverse(kept)
	return strings.Join(kept, "")
}
