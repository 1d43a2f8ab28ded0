package reliable

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxReason = 512     // bytes of a failure reason
	maxStack  = 4 << 10 // bytes of a kept stack
	noText    = "(no text)"
	ellipsis  = "…"
)

// reasonOf returns the reason that is kept for err: its text on one line, at most 512 bytes of valid UTF-8.
func reasonOf(err error) string { return reasonText(errorText(err), maxReason) }

// reasonText returns s as one line of valid UTF-8, of at most the given number of bytes, that does nothing to a
// terminal: each run of white space, line breaks included, is one blank, and none is at the ends; other control
// characters are shown by their pictures (ESC as ␛), so that an ANSI escape is harmless text; what turns the direction
// of writing, and bytes that are not UTF-8, become U+FFFD. What is too long is cut between two characters and ends in
// "…". Where nothing is left the text is "(no text)". No more of s than what is returned is copied.
func reasonText(s string, most int) string {
	line := boundedText{most: most}
	blank := false
	for _, r := range s {
		if unicode.IsSpace(r) {
			blank = line.Len() > 0
			continue
		}
		if blank {
			blank = false
			line.add(' ')
		}
		if !line.add(harmless(r)) {
			return line.cut()
		}
	}
	if line.Len() == 0 {
		return noText[:min(len(noText), max(most, 0))]
	}
	return line.String()
}

// boundedText is a text that never has more than most bytes.
type boundedText struct {
	strings.Builder
	most int
	keep int // the length up to the last character after which there is room for the ellipsis
}

// add appends a character, or returns false when there is no room for it.
func (b *boundedText) add(r rune) bool {
	if b.Len()+utf8.RuneLen(r) > b.most {
		return false
	}
	b.WriteRune(r)
	if b.Len()+len(ellipsis) <= b.most {
		b.keep = b.Len()
	}
	return true
}

// cut returns the text with an ellipsis in place of what did not fit, or without one where most has no room for it.
func (b *boundedText) cut() string {
	if b.most < len(ellipsis) {
		return b.String()
	}
	return strings.TrimRight(b.String()[:b.keep], " ") + ellipsis
}

// harmless returns what stands for a character in a text that a terminal shows. Decoding has made U+FFFD of bytes
// that are not UTF-8 already.
func harmless(r rune) rune {
	switch {
	case r < ' ':
		return '\u2400' + r
	case r == '\u007f':
		return '\u2421'
	case unicode.IsControl(r), turnsDirection(r):
		return utf8.RuneError
	}
	return r
}

// turnsDirection reports whether r makes a terminal or browser show the following text in another order.
func turnsDirection(r rune) bool {
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// errorText returns err's text, whatever its length. If its Error method panics the text says so.
func errorText(err error) (s string) {
	if err == nil {
		return noText
	}
	defer func() {
		if value := recover(); value != nil {
			// The value's own methods are not asked: they may be the ones that have just panicked.
			s = fmt.Sprintf("(no text: Error of %T has panicked: %s)", err, plainText(value))
		}
	}()
	return err.Error()
}

// panicText returns the text of a value given to panic: of an error or fmt.Stringer its own, of a string or number
// the value, of anything else only the type, since formatting it could take for ever or need any amount of memory.
func panicText(value any) (s string) {
	switch v := value.(type) {
	case error:
		return errorText(v)
	case fmt.Stringer:
		defer func() {
			if again := recover(); again != nil {
				s = fmt.Sprintf("(no text: String of %T has panicked: %s)", value, plainText(again))
			}
		}()
		return v.String()
	}
	return plainText(value)
}

// plainText writes a value without calling any of its methods.
func plainText(value any) string {
	v := reflect.ValueOf(value)
	switch {
	case !v.IsValid():
		return "nil"
	case v.Kind() == reflect.String:
		return v.String()
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case v.CanComplex():
		return strconv.FormatComplex(v.Complex(), 'g', -1, 128)
	}
	return fmt.Sprintf("a value of type %T", value)
}
