package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/weirlimit/weir/secret"
)

// Secret is a token or a password, or ${NAME}: the variable of the environment that it
// is in.
type Secret struct{ secret.Secret }

func (s *Secret) set(text string) error {
	if text == "" {
		return errors.New("is empty: openssl rand -hex 32 makes a token")
	}
	s.Secret = secret.New(text)
	return nil
}

func (*Secret) substitutes()      {}
func (*Secret) hides(string) bool { return true }

// Path is the path of a file. It is relative to the directory that the configuration is
// in. It may be ${NAME}.
type Path struct {
	Name string // as it can be opened
	dir  string
}

func (p *Path) set(text string) error {
	if text == "" || strings.ContainsRune(text, 0) {
		return errors.New("must be the path of a file")
	}
	p.Name = text
	if !filepath.IsAbs(text) {
		p.Name = filepath.Join(p.dir, text)
	}
	return nil
}

func (*Path) substitutes() {}

// relativeTo sets the directory that the path is relative to.
func (p *Path) relativeTo(dir string) { p.dir = dir }

// Address is a host and a port or a URL, which may have a password in it. It may be
// ${NAME}.
type Address struct{ secret.Secret }

func (a *Address) set(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	a.Secret = secret.New(text)
	return nil
}

func (*Address) substitutes() {}

// hides says whether there may be more in an address than where it is.
func (*Address) hides(text string) bool { return !harmlessAddress.MatchString(text) }

// harmlessAddress is a host and a port, a URL of nothing else, or the path of a socket.
var harmlessAddress = regexp.MustCompile(`^(([a-z]+://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?(/|/v1/traces)?|(unix://)?/[A-Za-z0-9._/-]+)$`)

var (
	wholeVariable = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
	someVariable  = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)
)

// substitute replaces ${NAME}, where it may be, by the variable. It returns false if
// that is a problem.
func (d *decoder) substitute(n *node, v reflect.Value, at path) bool {
	if !someVariable.MatchString(n.text) {
		return true
	}
	_, may := v.Addr().Interface().(substituted)
	whole := wholeVariable.FindStringSubmatch(n.text)
	_, hides := v.Addr().Interface().(secretive)
	switch {
	case !may && whole != nil:
		d.reject(n, at, "${%s} is not replaced here, only in secrets, addresses and paths: set %s", whole[1], variableOf(at))
		return false
	case !may:
		return true
	case whole == nil:
		if hides {
			d.text.mask(n, true)
		}
		d.reject(n, at, "${NAME} must be the whole value")
		return false
	}
	value, ok := d.environ[whole[1]]
	if !ok || value == "" {
		d.reject(n, at, "%s is not set in the environment", whole[1])
		return false
	}
	n.text, n.quoted = value, true
	if hides {
		n.masked = true // all of what comes from there
	}
	return true
}

// FileReader reads a file and returns its mode.
type FileReader func(name string) (data []byte, mode fs.FileMode, err error)

// readFile is the FileReader of the file system. It stops where any file would be too large.
func readFile(name string) ([]byte, fs.FileMode, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1)) // no other file may have as much
	return data, info.Mode(), err
}

// readRegular is readFile for files that are read again later. A named pipe would block that for good.
func readRegular(name string) ([]byte, fs.FileMode, error) {
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil, 0, errors.New("it is a named pipe: use a regular file, because it is read again when the configuration is")
	}
	return readFile(name)
}

// contents are the files that a configuration was made from, by name: the hash of what
// was in each.
type contents map[string][sha256.Size]byte

// note remembers what was in a file. One that cannot be read has a content, too: why.
func (c contents) note(name string, data []byte, err error) {
	if err != nil {
		data = []byte("cannot be read: " + err.Error())
	}
	c[name] = sha256.Sum256(data)
}

// content returns what is in a file. If it cannot be read, that is a problem of the field at a
// path.
func (c *checker) content(p Path, at path) ([]byte, fs.FileMode, bool) {
	return c.contentUpTo(maxBytes, p, at)
}

// contentUpTo is content for files of at most so many bytes.
func (c *checker) contentUpTo(most int, p Path, at path) ([]byte, fs.FileMode, bool) {
	data, mode, err := c.read(p.Name)
	c.out.loaded.note(p.Name, data, err)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	switch {
	case err != nil:
		c.complain(c.at(at), at, "%s: %v", p.Name, err)
	case len(data) > most: // the rest was not read
		c.complain(c.at(at), at, "%s: has more than %d bytes, which is the most", p.Name, most)
	default:
		return data, mode, true
	}
	return nil, 0, false
}

// secretFile returns what is in a file, without the end of its line; the zero value if that is a
// problem.
func (c *checker) secretFile(p Path, at path) secret.Secret {
	data, mode, ok := c.content(p, at)
	text := strings.TrimRight(string(data), "\r\n")
	switch {
	case !ok:
		return secret.Secret{}
	case text == "":
		c.complain(c.at(at), at, "%s: is empty", p.Name)
	case len(text) > maxSecret:
		c.complain(c.at(at), at, "%s: has %d bytes: at most %d fit", p.Name, len(text), maxSecret)
		return secret.Secret{}
	case mode&worldReadable != 0:
		c.warn(c.at(at), at, "%s: the file is world-readable: chmod 600 it", p.Name)
	}
	return secret.New(text)
}

const (
	maxSecret     = 4096
	worldReadable = fs.FileMode(0o004) // users other than the owner and the group may read
)

// secret returns the secret that is given in one of two ways, and where; the zero value if in none.
func (c *checker) secret(text Secret, file Path, at path, name string) (secret.Secret, path) {
	where := at.key(name + "_file")
	switch {
	case file.Name == "":
		return text.Secret, at.key(name)
	case !text.IsZero():
		c.complain(c.at(where), where, "%s is set, too: set only one of them", name)
		return secret.Secret{}, where
	}
	return c.secretFile(file, where), where
}

func variableOf(at path) string {
	parts := []string{"WEIR"}
	for _, s := range at {
		if s.name {
			parts = append(parts, envName(s.key))
		} else {
			parts = append(parts, fmt.Sprint(s.index))
		}
	}
	return strings.Join(parts, separator)
}
