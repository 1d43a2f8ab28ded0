package script

import (
	"strings"
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
		assert.Equal(t, want, strings.TrimSuffix(withLibraries(body, shelf), body), body)
	}
	body := "return e"
	assert.Equal(t, a+b+d+"local e = d\n"+body, withLibraries(body, shelf, "local e = d\n"), "a library uses the one before it")
}

func TestWhatOnlyARareFunctionUsesIsMadeInIt(t *testing.T) {
	t.Parallel()
	a, b := "local a = 1\n\n", "local function b(x)\n  -- not the end\n  return a + x\nend\n\n"
	d := "local d = b(2)\n"
	rare := func(inside string) string {
		return "local function seldom(x, y) -- rare\n" + inside + "  if x then\n    return d + y\n  end\nend\n"
	}
	for after, want := range map[string]string{
		"return 1\n":    rare(a+b+d) + "return 1\n",
		"return a\n":    a + rare(b+d) + "return a\n",
		"return b(1)\n": a + b + rare(d) + "return b(1)\n",
		"return d\n":    a + b + d + rare("") + "return d\n",
	} {
		assert.Equal(t, want, withLibraries(rare("")+after, shelf), after)
	}
	often := "local function often(x)\n  return x\nend\n"
	assert.Equal(t, a+often+rare(b+d)+"return a\n", withLibraries(often+rare("")+"return a\n", shelf), "what stands before it is not part of it")
	twice := strings.Replace(rare(""), "seldom", "hardly", 1) + rare("") + "return 1\n"
	assert.Equal(t, strings.Replace(rare(a+b+d), "seldom", "hardly", 1)+rare(a+b+d)+"return 1\n", withLibraries(twice, shelf), "each has its own")
}
