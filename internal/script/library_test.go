package script

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

const shelf = `-- a library
local a = 1

-- b says
-- two things
local function b(x)
  -- not the end
  return a + x
end

local c = {
  1,
}
local d = b(2)
`

func TestOfALibraryOnlyWhatIsUsedIsKept(t *testing.T) {
	t.Parallel()
	a, b := "local a = 1\n\n", "local function b(x)\n  -- not the end\n  return a + x\nend\n\n"
	c, d := "local c = {\n  1,\n}\n", "local d = b(2)\n"
	for body, want := range map[string]string{
		"return 1":          "",
		"return a":          a,
		"return b(1)":       a + b,
		"return c[1]":       c,
		"return d":          a + b + d,
		"return c[1] + d":   a + b + c + d,
		"return 1 -- not c": "",
		"return ab":         "",
		"x = d\n--a\n":      a + b + d,
		"c --\n..b(1)":      a + b + c,
		"c--b(1)":           a + b + c,
		"\t--c\nreturn 1a":  a,
	} {
		assert.Equal(t, want, needed(body, shelf), body)
	}
	assert.Equal(t, a+b+d+"local e = d\n", needed("return e", shelf, "local e = d\n"), "a library uses the one before it")
}
