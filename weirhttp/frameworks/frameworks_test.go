package frameworks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
	"github.com/weirlimit/weir/weirhttp"
)

// A framework makes a handler of a middleware. The handler answers POST /things/{id} with the id
// and the body, and GET /stream with a line that it flushes.
type framework struct {
	name    string
	handler func(limit func(http.Handler) http.Handler) http.Handler
}

var frameworks = []framework{{"chi", withChi}, {"echo", withEcho}, {"gin", withGin}}

func withChi(limit func(http.Handler) http.Handler) http.Handler {
	r := chi.NewRouter()
	r.Use(limit)
	r.Post("/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, chi.URLParam(r, "id")+" "+string(body))
	})
	r.Get("/stream", stream)
	return r
}

func withEcho(limit func(http.Handler) http.Handler) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(limit))
	e.POST("/things/:id", func(c echo.Context) error {
		body, _ := io.ReadAll(c.Request().Body)
		return c.String(http.StatusOK, c.Param("id")+" "+string(body))
	})
	e.GET("/stream", func(c echo.Context) error {
		stream(c.Response(), c.Request())
		return nil
	})
	return e
}

func withGin(limit func(http.Handler) http.Handler) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(ginMiddleware(limit))
	g.POST("/things/:id", func(c *gin.Context) {
		body, _ := io.ReadAll(c.Request.Body)
		c.String(http.StatusOK, c.Param("id")+" "+string(body))
	})
	g.GET("/stream", func(c *gin.Context) { stream(c.Writer, c.Request) })
	return g
}

// ginMiddleware is as docs/middleware.md has it.
func ginMiddleware(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

func stream(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "one\n")
	if err := http.NewResponseController(w).Flush(); err != nil {
		_, _ = io.WriteString(w, err.Error())
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// handlers calls f with the handler of each framework, with two requests per address and hour and
// three per key.
func handlers(t *testing.T, f func(t *testing.T, h http.Handler)) {
	hourly := func(n int64) weir.Limit { return weir.Limit{Rate: n, Per: weir.Every(time.Hour)} }
	for _, fw := range frameworks {
		t.Run(fw.name, func(t *testing.T) {
			table := must[*memstore.Table](t)(memstore.New(memstore.Config{}))
			perIP := must[*weir.Policy](t)(weir.NewPolicy("per-ip", hourly(2)))
			perKey := must[*weir.Policy](t)(weir.NewPolicy("per-key", hourly(3)))
			f(t, fw.handler(weirhttp.Limit(table,
				weirhttp.By(perKey, weirhttp.Header("X-Api-Key")), weirhttp.By(perIP, weirhttp.ClientIP()))))
		})
	}
}

func post(addr, key string, body io.Reader) *http.Request {
	r := httptest.NewRequest("POST", "/things/7", body)
	r.RemoteAddr = addr
	r.Header.Set("X-Api-Key", key)
	r.Header.Set("X-Forwarded-For", "198.51.100.1") // nobody is to believe it
	r.Header.Set("X-Real-Ip", "198.51.100.1")
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// unread fails a test that reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) { u.t.Error("the body was read"); return 0, io.EOF }

func TestAllowed(t *testing.T) {
	handlers(t, func(t *testing.T, h http.Handler) {
		w := send(h, post("192.0.2.1:1", "a", strings.NewReader("body")))
		if w.Code != 200 || w.Body.String() != "7 body" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		for name, want := range map[string]string{
			"RateLimit-Policy": `"per-key";q=3;w=3600, "per-ip";q=2;w=3600`,
			"RateLimit":        `"per-ip";r=1`,
			"Retry-After":      "",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	})
}

func TestDenied(t *testing.T) {
	handlers(t, func(t *testing.T, h http.Handler) {
		for range 2 {
			if w := send(h, post("192.0.2.1:1", "a", nil)); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		w := send(h, post("192.0.2.1:2", "a", unread{t}))
		if w.Code != 429 || w.Header().Get("RateLimit") != `"per-ip";r=0;t=1800` || w.Header().Get("Retry-After") != "1800" {
			t.Errorf("%d, %v", w.Code, w.Header())
		}
		if got := w.Header().Values("Content-Type"); !slices.Equal(got, []string{"application/problem+json"}) {
			t.Errorf("Content-Type: %q", got)
		}
		var p weirhttp.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != 429 || !slices.Equal(p.Violated, []string{"per-ip"}) {
			t.Errorf("%s: %+v, %v", w.Body, p, err)
		}
		if w := send(h, post("192.0.2.2:1", "a", nil)); w.Code != 200 {
			t.Errorf("another address: %d", w.Code)
		}
		if w := send(h, post("192.0.2.3:1", "a", nil)); w.Code != 429 || !strings.HasPrefix(w.Header().Get("RateLimit"), `"per-key"`) {
			t.Errorf("the key, from a third address: %d %v", w.Code, w.Header())
		}
	})
}

// TestFlush has handlers flush through the framework's own ResponseWriter.
func TestFlush(t *testing.T) {
	handlers(t, func(t *testing.T, h http.Handler) {
		r := httptest.NewRequest("GET", "/stream", nil)
		if w := send(h, r); !w.Flushed || w.Body.String() != "one\n" || w.Header().Get("RateLimit") == "" {
			t.Errorf("flushed %v, %q, %v", w.Flushed, w.Body, w.Header())
		}
	})
}

// TestUnknownRoutes are charged, too: a router calls middleware before it knows the route.
func TestUnknownRoutes(t *testing.T) {
	handlers(t, func(t *testing.T, h http.Handler) {
		var codes []int
		for range 3 {
			codes = append(codes, send(h, httptest.NewRequest("GET", "/nowhere", nil)).Code)
		}
		if !slices.Equal(codes, []int{404, 404, 429}) {
			t.Errorf("%v", codes)
		}
	})
}
