package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// GoBlocks returns the blocks of Go code in a Markdown text, as they stand between their fences.
func GoBlocks(markdown string) []string {
	var blocks []string
	for rest := markdown; ; {
		_, after, found := strings.Cut(rest, "\n```go\n")
		if !found {
			return blocks
		}
		block, next, found := strings.Cut(after, "\n```")
		if !found {
			return append(blocks, after)
		}
		blocks = append(blocks, block+"\n")
		rest = next
	}
}

// CheckGoBlocks returns every block of Go code in the text that does not stand, word for word, in the examples.
func CheckGoBlocks(markdown, examples string) []string {
	var bad []string
	for i, block := range GoBlocks(markdown) {
		if !strings.Contains(examples, block) {
			first, _, _ := strings.Cut(block, "\n")
			bad = append(bad, fmt.Sprintf("block %d of Go code (`%s`) does not stand in the examples", i+1, first))
		}
	}
	return bad
}

var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// CheckLinksOf returns every link in a Markdown file that leads to a place in the tree which is not there.
func CheckLinksOf(tree fs.FS, file string) ([]string, error) {
	text, err := fs.ReadFile(tree, file)
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, match := range markdownLink.FindAllStringSubmatch(string(text), -1) {
		target, anchor, _ := strings.Cut(match[1], "#")
		if strings.Contains(target, "://") {
			continue
		}
		place := file
		if target != "" {
			place = path.Join(path.Dir(file), target)
		}
		if _, err := fs.Stat(tree, place); err != nil {
			bad = append(bad, fmt.Sprintf("%s links to %s, which is not there", file, match[1]))
			continue
		}
		if anchor == "" || path.Ext(place) != ".md" {
			continue
		}
		linked, err := fs.ReadFile(tree, place)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(anchors(string(linked)), anchor) {
			bad = append(bad, fmt.Sprintf("%s links to %s, and there is no such heading", file, match[1]))
		}
	}
	return bad, nil
}

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors are the names under which the headings of a Markdown text can be linked to.
func anchors(markdown string) []string {
	var all []string
	for line := range strings.SplitSeq(markdown, "\n") {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			name := noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return all
}
