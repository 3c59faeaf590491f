package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	maxFrame = 16 << 20 // bytes in a request or reply
	maxLine  = 64 << 10 // bytes in a line, as in Redis
	maxDepth = 32
)

// errProtocol means that a peer sent what is not RESP, or more than the bounds.
var errProtocol = errors.New("not RESP, or too large")

// span is a part of a frame's bytes.
type span struct{ from, to int }

// frame is one complete RESP2 or RESP3 value, with the attributes before it.
type frame struct {
	raw   []byte
	kind  byte   // its type character, or 0 for an inline command
	items []span // the strings and numbers directly inside an array, set, map or push
}

func (f frame) item(i int) string {
	if i >= len(f.items) {
		return ""
	}
	return string(f.raw[f.items[i].from:f.items[i].to])
}

func (f frame) strings() []string {
	s := make([]string, len(f.items))
	for i := range s {
		s[i] = f.item(i)
	}
	return s
}

// parser cuts a stream into frames. It allocates for what has arrived, not for
// what a length announces.
type parser struct {
	r     *bufio.Reader
	raw   []byte
	items []span
}

func newParser(r io.Reader) *parser { return &parser{r: bufio.NewReaderSize(r, maxLine)} }

// reply reads the next value. At the end of the stream it returns io.EOF between
// frames and io.ErrUnexpectedEOF inside one.
func (p *parser) reply() (frame, error) {
	p.raw, p.items = nil, nil
	kind, err := p.value(0)
	if err != nil {
		return frame{}, p.endError(err)
	}
	return frame{raw: p.raw, kind: kind, items: p.items}, nil
}

// request reads the next command: an array, or a line of words. Errors are those
// of reply.
func (p *parser) request() (frame, error) {
	first, err := p.r.Peek(1)
	if err != nil {
		return frame{}, err
	}
	if first[0] == '*' {
		return p.reply()
	}
	p.raw, p.items = nil, nil
	line, err := p.line()
	if err != nil {
		return frame{}, p.endError(err)
	}
	for at := line.from; at < line.to; {
		word := p.raw[at:line.to]
		start := at + len(word) - len(bytes.TrimLeft(word, " "))
		end := line.to
		if n := bytes.IndexByte(p.raw[start:line.to], ' '); n >= 0 {
			end = start + n
		}
		if start < end {
			p.items = append(p.items, span{start, end})
		}
		at = end
	}
	return frame{raw: p.raw, items: p.items}, nil
}

// endError tells an end inside a frame from one between frames.
func (p *parser) endError(err error) error {
	if errors.Is(err, io.EOF) && len(p.raw) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// value reads one value into raw and returns its type character.
func (p *parser) value(depth int) (byte, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("%w: nested too deep", errProtocol)
	}
	line, err := p.line()
	if err != nil {
		return 0, err
	}
	if line.from == line.to {
		return 0, fmt.Errorf("%w: empty line", errProtocol)
	}
	kind := p.raw[line.from]
	line.from++
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		p.note(depth, line)
		return kind, nil
	case '$', '=', '!':
		return kind, p.bulk(depth, line)
	case '*', '~', '>':
		return kind, p.elements(depth, line, 1)
	case '%':
		return kind, p.elements(depth, line, 2)
	case '|': // attributes belong to the value that follows
		if err := p.elements(depth+1, line, 2); err != nil {
			return 0, err
		}
		return p.value(depth)
	}
	return 0, fmt.Errorf("%w: type %q", errProtocol, kind)
}

// note records what stands directly inside the outermost value.
func (p *parser) note(depth int, s span) {
	if depth == 1 {
		p.items = append(p.items, s)
	}
}

// bulk reads the bytes of a string whose length is in line; -1 is null.
func (p *parser) bulk(depth int, line span) error {
	n, err := p.number(line)
	if err != nil {
		return err
	}
	start := len(p.raw)
	if n < 0 {
		p.note(depth, span{start, start})
		return nil
	}
	if err := p.read(n + 2); err != nil {
		return err
	}
	if !bytes.HasSuffix(p.raw, []byte("\r\n")) {
		return fmt.Errorf("%w: string without an end", errProtocol)
	}
	p.note(depth, span{start, start + n})
	return nil
}

// elements reads what an aggregate holds; -1 is null.
func (p *parser) elements(depth int, line span, each int) error {
	n, err := p.number(line)
	if err != nil {
		return err
	}
	for range n * each {
		if _, err := p.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// number reads a length. Redis never sends the streamed lengths of RESP3.
func (p *parser) number(line span) (int, error) {
	n, err := strconv.Atoi(string(p.raw[line.from:line.to]))
	if err != nil || n < -1 || n > maxFrame {
		return 0, fmt.Errorf("%w: length %q", errProtocol, p.raw[line.from:line.to])
	}
	return n, nil
}

// line adds the next line to raw and returns where it stands, without its end.
func (p *parser) line() (span, error) {
	text, err := p.r.ReadSlice('\n')
	start := len(p.raw)
	p.raw = append(p.raw, text...) // before the error is looked at: endError asks for it
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || len(p.raw) > maxFrame:
		return span{}, fmt.Errorf("%w: line or frame too long", errProtocol)
	case err != nil:
		return span{}, err
	case len(text) < 2 || text[len(text)-2] != '\r':
		return span{}, fmt.Errorf("%w: line without a carriage return", errProtocol)
	}
	return span{start, len(p.raw) - 2}, nil
}

// read adds n bytes to raw.
func (p *parser) read(n int) error {
	if len(p.raw)+n > maxFrame {
		return fmt.Errorf("%w: frame too long", errProtocol)
	}
	for n > 0 {
		chunk := min(n, maxLine)
		start := len(p.raw)
		p.raw = append(p.raw, make([]byte, chunk)...)
		if _, err := io.ReadFull(p.r, p.raw[start:]); err != nil {
			return err
		}
		n -= chunk
	}
	return nil
}
