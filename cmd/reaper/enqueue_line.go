package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leaseq/leaseq/reliable"
)

// lineHash writes hashes with the digits of generated IDs.
var lineHash = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// lineID is the ID of a job whose line says none. It never changes: a file that was sent in part by one version must be
// known again by another one.
func lineID(series string, number int64, text []byte) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, series) // never fails
	_, _ = sum.Write([]byte{0})
	_, _ = sum.Write(text)
	return fmt.Sprintf("line:%d:%s", number, lineHash.EncodeToString(sum.Sum(nil)[:16]))
}

// parseLine reads one line without its end.
func parseLine(text []byte, kind string) (reliable.Item, error) {
	item := reliable.Item{Kind: kind}
	if !utf8.Valid(text) {
		return item, errors.New("not valid UTF-8: bytes go into payload_base64")
	}
	payloads := 0
	err := eachField(text, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "kind":
			item.Kind, err = jsonText(value)
		case "payload":
			payloads++
			item.Payload, err = jsonPayload(value)
		case "payload_base64":
			payloads++
			item.Payload, err = jsonBase64(value)
		case "id":
			if item.ID, err = jsonText(value); err == nil && item.ID == "" {
				err = errors.New("is empty")
			}
		case "delay":
			item.Delay, err = jsonDelay(value)
		case "at":
			item.At, err = jsonTime(value)
		case "not_after":
			item.NotAfter, err = jsonTime(value)
		case "on_conflict":
			item.OnConflict, err = jsonConflict(value)
		case "headers":
			item.Headers, err = jsonHeaders(value)
		case "max_retries":
			item.MaxRetries, err = jsonInt(value)
		case "max_expiries":
			item.MaxExpiries, err = jsonInt(value)
		default:
			return fmt.Errorf("field %.64q is not known", name)
		}
		if err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		return nil
	})
	if err == nil && payloads > 1 {
		err = errors.New("payload and payload_base64: want one of them")
	}
	if err == nil && item.Kind == "" {
		err = errors.New("kind is missing, and --kind is not given")
	}
	return item, err
}

// eachField reads a JSON object. A name that comes twice is an error, since one of the two would be lost.
func eachField(text []byte, field func(name string, value json.RawMessage) error) error {
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil { // checks the whole
		var wrong *json.SyntaxError
		if errors.As(err, &wrong) {
			return fmt.Errorf("not JSON: %w, at byte %d", err, wrong.Offset)
		}
		return fmt.Errorf("not JSON: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return errors.New("want a JSON object")
	}
	seen := map[string]bool{}
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if seen[name] {
			return fmt.Errorf("%.64q comes twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			return err
		}
		if err := field(name, value); err != nil {
			return err
		}
	}
	return nil
}

// jsonText reads a text and refuses what the standard library would put a replacement character for.
func jsonText(value json.RawMessage) (string, error) {
	var text string
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return "", errors.New("is no text")
	}
	if loneSurrogate(value) {
		return "", errors.New(`holds half of a \u pair, which is no character`)
	}
	return text, nil
}

// loneSurrogate looks for an escaped half of a character without the other half. The text is valid JSON.
func loneSurrogate(value []byte) bool {
	unit := func(i int) (code uint64) {
		if i+6 <= len(value) && value[i] == '\\' && value[i+1] == 'u' {
			code, _ = strconv.ParseUint(string(value[i+2:i+6]), 16, 16)
		}
		return code
	}
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			continue
		}
		switch code := unit(i); {
		case code >= 0xd800 && code < 0xdc00 && unit(i+6) >= 0xdc00 && unit(i+6) < 0xe000:
			i += 11
		case code >= 0xd800 && code < 0xe000:
			return true
		default:
			i++ // what is escaped may be a backslash
		}
	}
	return false
}

func jsonPayload(value json.RawMessage) ([]byte, error) {
	if value[0] != '"' {
		return value, nil
	}
	text, err := jsonText(value)
	return []byte(text), err
}

func jsonBase64(value json.RawMessage) ([]byte, error) {
	text, err := jsonText(value)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("is no base64: it holds a line end")
	}
	out, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("is no base64 with padding: %w", err)
	}
	return out, nil
}

func jsonDelay(value json.RawMessage) (time.Duration, error) {
	text, err := jsonText(value)
	if err != nil {
		return 0, errors.New(`is no text: want it as "30m"`)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("is %.64q: want it as \"30m\"", text)
	}
	return d, nil
}

func jsonTime(value json.RawMessage) (time.Time, error) {
	text, err := jsonText(value)
	if err != nil {
		return time.Time{}, err
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("is %.64q: want a time as 2026-01-31T08:00:00Z", text)
	}
	return at, nil
}

// conflicts are what may happen where a job has the ID already.
var conflicts = map[string]reliable.Conflict{"reject": reliable.Reject, "keep": reliable.Keep, "replace": reliable.Replace}

// jsonConflict reads one of them. Of a line, keep is as reject: what is there already is counted, by place, and is no failure.
func jsonConflict(value json.RawMessage) (reliable.Conflict, error) {
	text, err := jsonText(value)
	if err != nil {
		return reliable.Reject, err
	}
	mode, ok := conflicts[text]
	if !ok {
		return reliable.Reject, fmt.Errorf("is %.64q: want reject, keep or replace", text)
	}
	if mode == reliable.Keep {
		mode = reliable.Reject
	}
	return mode, nil
}

func jsonHeaders(value json.RawMessage) (map[string]string, error) {
	headers := map[string]string{}
	if value[0] != '{' {
		return nil, errors.New("is no object")
	}
	err := eachField(value, func(name string, value json.RawMessage) (err error) {
		if headers[name], err = jsonText(value); err != nil {
			return fmt.Errorf("%.64q %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("has a mistake: %w", err)
	}
	return headers, nil
}

func jsonInt(value json.RawMessage) (*int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return nil, errors.New("is no whole number")
	}
	return &n, nil
}
