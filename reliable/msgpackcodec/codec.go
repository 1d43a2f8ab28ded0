// Package msgpackcodec is a codec for typed payloads in MessagePack (https://msgpack.org): smaller than JSON, exact for
// 64-bit integers, with bytes and times of its own.
//
//	q, err := reliable.New(rdb, "orders", &reliable.QueueOptions{Codec: msgpackcodec.Codec})
//
// All producers and consumers of a kind use the same codec. Nothing stored tells which one that was: a kind that
// changes its codec is a new kind.
//
// # What becomes of a value
//
//   - Whole numbers stay whole numbers, to the last digit of an int64 or uint64, in as few bytes as hold them. One that
//     is too large for the field that it is decoded into, or that would lose its sign or a fraction, is an error; but
//     for a uint64 of 2⁶³ or more in a signed field, which comes out as another number, mostly a negative one. Decoded
//     into any a whole number becomes an int64 or a uint64, a float a float64.
//   - A string is a str, bytes are a bin; each comes back byte for byte, also where a string is not valid UTF-8. A bin
//     decodes into a string and a str into bytes, as writers of the old format need it. Decoded into any, a str becomes
//     a string and a bin a []byte.
//   - A time.Time is a timestamp (extension −1): the instant, to the nanosecond, without its zone; decoded it is in UTC.
//     The zero Time is nil. A time.Duration is its number of nanoseconds.
//   - A struct is a map with the names of its exported fields as keys. The tag `msgpack:"name"` gives another name, and
//     where there is none `json:"name"` does, so that types keep the names that they have in JSON; "-" leaves a field
//     out, "omitempty" leaves it out while it is empty. Names match exactly, case included. [Options] takes other tags.
//   - Fields that the type does not have are ignored, fields that the payload does not have keep their zero value, a
//     name that stands there twice counts the last time: a type may gain optional fields.
//   - nil is the zero value. A struct is also read from an array, its fields in their order.
//   - Maps are written in the order of their keys, so that equal values have equal payloads. One decoded into any becomes
//     a map[string]any; one with a key that is no string is then an error.
//   - A type with MarshalBinary and UnmarshalBinary (encoding.BinaryMarshaler) is the bin that these make. One without
//     exported fields and without them, as a big.Int, is an empty map: its content is lost. Send it as a string. Nor is
//     a function or a channel refused: leave such fields out.
//
// # What is refused
//
// An empty payload, bytes behind the value, one that ends early, and one that is nested deeper than 1,000 levels are
// errors, and bury the job as any bad payload does. A length in the payload is not believed: nothing is allocated for
// elements that are not there. Arbitrary bytes never panic, and a panic in a method of the type that decodes itself is an
// error as well. A value that contains itself is an error when it is encoded.
package msgpackcodec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"

	"github.com/ugorji/go/codec"

	"github.com/leaseq/leaseq/reliable"
)

// defaultTags are the struct tags that name fields where Options says nothing else.
var defaultTags = []string{"msgpack", "json"}

// Codec is the codec with the default options. Its name is "msgpack".
var Codec reliable.Codec = newCodec(defaultTags)

// Options are the optional settings of [New]; nil is valid.
type Options struct {
	// Tags are the struct tags that name fields, the first one that a field has. Default: msgpack, then json.
	Tags []string
}

// New returns a codec with options of its own. The error names everything that is wrong with them.
func New(o *Options) (reliable.Codec, error) {
	if o == nil || o.Tags == nil {
		return Codec, nil
	}
	if err := checkTags(o.Tags); err != nil {
		return nil, fmt.Errorf("msgpackcodec.New: %w", err)
	}
	return newCodec(o.Tags), nil
}

func checkTags(tags []string) error {
	if len(tags) == 0 {
		return errors.New("Tags is empty but not nil: name at least one struct tag, or leave it nil for msgpack and json")
	}
	var errs []error
	seen := map[string]bool{}
	for i, tag := range tags {
		foreign := func(r rune) bool { return r <= ' ' || r == ':' || r == '"' || unicode.IsControl(r) }
		switch {
		case tag == "":
			errs = append(errs, fmt.Errorf("Tags[%d] is empty: want the name of a struct tag", i))
		case strings.ContainsFunc(tag, foreign):
			errs = append(errs, fmt.Errorf("Tags[%d] is %q: the name of a struct tag has no blank, colon, quote or control character", i, tag))
		case seen[tag]:
			errs = append(errs, fmt.Errorf("Tags[%d] is %q once more: name each once", i, tag))
		}
		seen[tag] = true
	}
	return errors.Join(errs...)
}

// msgpackCodec shares one handle, which is not changed any more, between encoders and decoders that are used again.
type msgpackCodec struct {
	handle             *codec.MsgpackHandle
	encoders, decoders sync.Pool
}

func newCodec(tags []string) *msgpackCodec {
	h := &codec.MsgpackHandle{WriteExt: true} // bin and timestamps, as the format has had them since 2013
	h.TypeInfos = codec.NewTypeInfos(append([]string(nil), tags...))
	h.MapType = reflect.TypeFor[map[string]any]()
	h.MaxDepth = maxDepth + 24 // checkOutline has bounded it
	h.CheckCircularRef = true
	h.Canonical = true // equal values have equal payloads: maps are written in the order of their keys
	c := &msgpackCodec{handle: h}
	c.encoders.New = func() any { return codec.NewEncoderBytes(new([]byte), h) }
	c.decoders.New = func() any { return codec.NewDecoderBytes(nil, h) }
	return c
}

// Name is that of the format in errors.
func (c *msgpackCodec) Name() string { return "msgpack" }

// Marshal returns the payload of v.
func (c *msgpackCodec) Marshal(v any) ([]byte, error) {
	encoder := c.encoders.Get().(*codec.Encoder)
	var payload []byte
	encoder.ResetBytes(&payload)
	if err := encoder.Encode(v); err != nil {
		return nil, err // the encoder is not used again
	}
	encoder.ResetBytes(new([]byte)) // it must not keep the payload
	c.encoders.Put(encoder)
	return payload, nil
}

// Unmarshal decodes data, which has to be one value to the byte, into what v points to.
func (c *msgpackCodec) Unmarshal(data []byte, v any) error {
	if err := checkOutline(data); err != nil {
		return err
	}
	decoder := c.decoders.Get().(*codec.Decoder)
	decoder.ResetBytes(data)
	if err := decoder.Decode(v); err != nil {
		return err // the decoder is not used again
	}
	decoder.ResetBytes(nil)
	c.decoders.Put(decoder)
	return nil
}
