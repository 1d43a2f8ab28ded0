package archtest

import (
	"fmt"
	"strings"
)

// A luaToken is a name, keyword, number or symbol as it stands, or a string with its quotes taken off.
type luaToken struct {
	text   string
	str    bool // a string
	line   int
	depth  int // how many functions are around it
	nested int // how many brackets are open around it
}

// name reports whether the token is an identifier or a keyword.
func (t luaToken) name() bool {
	return !t.str && t.text != "" && nameByte(t.text[0]) && !digit(t.text[0])
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func nameByte(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || digit(c)
}

// lexLua splits Lua 5.1 into tokens, without comments. Long brackets are the only thing that it refuses: no script of
// ours has a use for them.
func lexLua(text string) ([]luaToken, error) {
	var tokens []luaToken
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		end := i + 1
		switch {
		case c == '\n':
			line++
		case c == ' ' || c == '\t' || c == '\r':
		case strings.HasPrefix(text[i:], "--"):
			end = i + strings.IndexByte(text[i:]+"\n", '\n')
			if strings.HasPrefix(text[i:], "--[") {
				return nil, fmt.Errorf("line %d: a comment in long brackets", line)
			}
		case c == '\'' || c == '"':
			for end < len(text) && text[end] != c && text[end] != '\n' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(text) || text[end] != c {
				return nil, fmt.Errorf("line %d: a string that does not end", line)
			}
			tokens = append(tokens, luaToken{text: text[i+1 : end], str: true, line: line})
			end++
		case strings.HasPrefix(text[i:], "[[") || strings.HasPrefix(text[i:], "[="):
			return nil, fmt.Errorf("line %d: a string in long brackets", line)
		default:
			end = symbolEnd(text, i)
			tokens = append(tokens, luaToken{text: text[i:end], line: line})
		}
		i = end
	}
	measureDepth(tokens)
	return tokens, nil
}

// symbolEnd finds the end of the name, number or symbol that begins at i.
func symbolEnd(text string, i int) int {
	if digit(text[i]) {
		for i++; i < len(text) && (nameByte(text[i]) || text[i] == '.'); i++ {
		}
		return i
	}
	if nameByte(text[i]) {
		for i++; i < len(text) && nameByte(text[i]); i++ {
		}
		return i
	}
	for _, symbol := range []string{"...", "..", "==", "~=", "<=", ">="} {
		if strings.HasPrefix(text[i:], symbol) {
			return i + len(symbol)
		}
	}
	return i + 1
}

// measureDepth notes for each token how many functions and brackets are around it.
func measureDepth(tokens []luaToken) {
	var blocks []string
	functions, brackets := 0, 0
	for i := range tokens {
		t := &tokens[i]
		closing := !t.str && strings.Contains(")}]", t.text)
		if closing {
			brackets--
		}
		t.depth, t.nested = functions, brackets
		if t.str {
			continue
		}
		switch t.text {
		case "(", "{", "[":
			brackets++
		case "function":
			functions++
			blocks = append(blocks, t.text)
		case "if", "do", "repeat":
			blocks = append(blocks, t.text)
		case "end", "until":
			if n := len(blocks); n > 0 {
				if blocks[n-1] == "function" {
					functions--
				}
				blocks = blocks[:n-1]
			}
		}
	}
}
