package wire

import "testing"

func BenchmarkAppend(b *testing.B) {
	for name, e := range benchmarked() {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Append(dst, e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, e := range benchmarked() {
		b.Run(name, func(b *testing.B) {
			record := encode(b, e)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarked() map[string]*Envelope {
	plain := &Envelope{Kind: "order.close", Payload: make([]byte, 200), EnqueuedAt: noon}
	return map[string]*Envelope{"plain": plain, "headers": full()}
}
