package model

import "math/bits"

// mixer folds words into one key. Two orders of the same words give different keys.
type mixer uint64

const (
	mixA = 0x9e3779b97f4a7c15
	mixB = 0xd1342543de82ef95
)

//go:norace
func (m *mixer) add(word uint64) {
	hi, lo := bits.Mul64(uint64(*m)^word^mixA, mixB)
	*m = mixer(bits.RotateLeft64(hi^lo, 23) + word*mixA)
}

//go:norace
func (m *mixer) sum() uint64 {
	hi, lo := bits.Mul64(uint64(*m)^mixB, mixA)
	return hi ^ lo
}

// scatter makes a word one that can be added up with others, for sets without an order.
func scatter(word uint64) uint64 {
	m := mixer(mixB)
	m.add(word)
	return m.sum()
}
