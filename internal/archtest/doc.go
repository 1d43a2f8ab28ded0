// Package archtest keeps the rules of the house that the compiler does not: who may import whom, what a user's program
// links, how long files and functions may get, where keys are built, how Lua scripts begin and end, which words are
// used, and that the documents show code that is compiled.
//
// Each rule is a function that takes what it judges and returns every violation, so that its test can show that it
// finds a bad input as well as that the tree has none. Nothing outside of tests imports this package.
package archtest
