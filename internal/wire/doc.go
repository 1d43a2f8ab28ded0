// Package wire encodes the record of a job, the envelope: its kind, payload, headers and enqueue time.
//
// An envelope is written once, when a job is enqueued, and is read whole. Redis stores it as an opaque value: no script
// looks into it. What changes while a job lives (counters, lease, due time) is kept elsewhere.
//
// # Layout, version 1
//
//	field           bytes     holds
//	version         1         0x01
//	headers length  uvarint   bytes of the headers block, 0 if there are no headers
//	enqueue time    8         microseconds since 1970-01-01 UTC, signed (two's complement), big-endian
//	kind length     1         1 to 128
//	kind            n         A-Z a-z 0-9 . _ : / -
//	headers block   n         for each header, in ascending order of the names' bytes:
//	                            uvarint name length, name, uvarint value length, value
//	payload length  uvarint   bytes of the payload
//	payload         n         opaque, the last byte of the record
//
// A uvarint is the one of encoding/binary (seven bits a byte, lowest first, the top bit set on all but the last byte),
// always in its shortest form. The fixed parts cost 11 bytes and the payload's length 1 to 5, so that a record without
// headers is at most 16 bytes longer than its kind and payload.
//
// # One envelope, one encoding
//
// Equal envelopes have equal bytes, in every implementation, and [Decode] accepts nothing else: a length that is not to
// the byte, a length in more bytes than it needs, headers out of order or named twice, a kind or headers that [Append]
// would refuse. A record that was cut anywhere, or has bytes behind its end, is therefore always found out. A record
// with changed bytes of the right length is not: there is no checksum. The limits on kind and headers belong to the
// layout, since a reader refuses what breaks them; raising one takes a new version.
//
// The one envelope that Append does not write is the stub, see [Stub].
//
// # The first byte
//
//	0            undecodable: what zeroed storage begins with
//	1            this layout
//	2 to 15      a newer version ([NewerVersionError]): a newer program wrote it and will read it
//	16 to 255    undecodable: printable text, JSON, msgpack maps, gzip and most else that was never an envelope
//
// The range of newer versions is small on purpose. A job of a newer version goes back to due again and again, without
// end, and a foreign value must not be taken for one. The opposite mistake is mendable too: an undecodable record goes
// to dead with its bytes kept, from where it can be redriven.
package wire
