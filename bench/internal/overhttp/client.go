package overhttp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// A key has so many bytes, of which the last few tell it apart.
const (
	keyLength = 20
	keyDigits = 8
)

// A caller is one connection. Its memory is made once: a request allocates nothing here.
type caller struct {
	conn    net.Conn
	request []byte // sent again and again
	key     []byte // the part of it that changes
	answer  []byte
	random  *rand.Rand
	keys    int
	want    []byte // in every answer
}

func dial(addr string, seed uint64, keys int, want string) (*caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"policy":%q,"key":"%0*d","cost":1}`, policy, keyLength, 0)
	head := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", addr, len(body))
	c := &caller{
		conn: conn, request: []byte(head + body), answer: make([]byte, 4096),
		random: rand.New(rand.NewPCG(1, seed)), keys: keys, want: []byte(want),
	}
	at := len(head) + bytes.Index([]byte(body), []byte(`"key":"`)) + len(`"key":"`)
	c.key = c.request[at : at+keyLength]
	return c, nil
}

// callLimit is how long an answer may take: so long that none does.
const callLimit = 10 * time.Second

// ask asks for a random key.
func (c *caller) ask() error {
	n := c.random.IntN(c.keys)
	for i := len(c.key) - 1; i >= len(c.key)-keyDigits; i-- {
		c.key[i] = byte('0' + n%10)
		n /= 10
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	return c.read()
}

var (
	okLine      = []byte("HTTP/1.1 200 OK\r\n")
	lengthField = []byte("\r\nContent-Length: ")
	headEnd     = []byte("\r\n\r\n")
)

// read reads one answer, of which everything is there when the body is as long as the
// head says.
func (c *caller) read() error {
	have, whole := 0, -1
	for whole < 0 || have < whole {
		n, err := c.conn.Read(c.answer[have:])
		if err != nil {
			return err
		}
		have += n
		if whole < 0 {
			if whole, err = size(c.answer[:have]); err != nil {
				return err
			}
		}
		if have == len(c.answer) {
			return errors.New("an answer is too long")
		}
	}
	if have != whole || !bytes.HasPrefix(c.answer[:have], okLine) || !bytes.Contains(c.answer[:have], c.want) {
		return fmt.Errorf("an answer is not as expected: %q", c.answer[:have])
	}
	return nil
}

// size returns how long an answer will be, -1 if not all of its head is there.
func size(answer []byte) (int, error) {
	end := bytes.Index(answer, headEnd)
	if end < 0 {
		return -1, nil
	}
	at := bytes.Index(answer[:end], lengthField)
	if at < 0 {
		return 0, fmt.Errorf("an answer does not say how long it is: %q", answer)
	}
	length := 0
	for _, digit := range answer[at+len(lengthField) : end] {
		if digit < '0' || digit > '9' {
			break
		}
		length = 10*length + int(digit-'0')
	}
	return end + len(headEnd) + length, nil
}
