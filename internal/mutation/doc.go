// Package mutation shows that the tests of this project would notice. It drops one safeguard of the product at a time,
// in a copy of the files that hold it, which the Go tool puts in the place of the real ones (go build -overlay): no
// switch for it is in the product. Then it runs what is to find that out, which is as far as possible something that
// knows nothing of that safeguard: random lists of calls beside a model, or a storm whose history is judged.
//
// `make mutants` tries all of them and prints the table that is in chaos/README.md.
package mutation
