package ui

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

var pictures = flag.String("pictures", "", "directory for screenshots of the browser test")

// browser is a Chromium without a window, which the test drives through two pipes (its
// --remote-debugging-pipe): JSON messages that end with a zero byte.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	n       int
	session string

	requests []string // addresses that the page asked for
	faults   []string // exceptions and complaints of the page
}

// startBrowser skips the test where there is no Chromium, or one that does not answer: it is a large
// program, and its start may fail on a machine that is short of something.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" || testing.Short() {
		t.Skip("no Chromium is installed, or the run is short")
	}
	for range 3 {
		if b := tryBrowser(t, path); b != nil {
			return b
		}
	}
	t.Skip("Chromium does not answer")
	return nil
}

// tryBrowser gives nil if the browser does not answer within half a minute.
func tryBrowser(t *testing.T, path string) *browser {
	t.Helper()
	read, to, err := os.Pipe()
	require.NoError(t, err)
	from, write, err := os.Pipe()
	require.NoError(t, err)
	home, err := os.MkdirTemp("", "ebb-ui")
	require.NoError(t, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-dev-shm-usage", "--user-data-dir="+home, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{read, write}
	require.NoError(t, cmd.Start())
	require.NoError(t, read.Close())
	require.NoError(t, write.Close())
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	end := func() {
		_ = cmd.Process.Kill()    // its other processes end with it
		_ = cmd.Process.Release() // no wait: a browser that hangs may not even be killed
		_ = to.Close()
		_ = from.Close()
		for range 50 { // they may still be writing there
			if os.RemoveAll(home) == nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	require.NoError(t, from.SetReadDeadline(time.Now().Add(30*time.Second)))
	if _, err := b.ask("Browser.getVersion", nil); err != nil {
		end()
		return nil
	}
	require.NoError(t, from.SetReadDeadline(time.Now().Add(3*time.Minute)))
	t.Cleanup(func() {
		_, _ = b.ask("Browser.close", nil)
		_ = from.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.Copy(io.Discard, b.from) // until the browser has ended
		end()
	})
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.call("Target.attachToTarget",
		map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	for _, domain := range []string{"Runtime", "Network", "Log", "Page"} {
		b.call(domain+".enable", nil)
	}
	return b
}

// call is ask for a message that must have an answer.
func (b *browser) call(method string, params map[string]any) map[string]any {
	b.t.Helper()
	answer, err := b.ask(method, params)
	require.NoError(b.t, err, "%s", method)
	return answer
}

// ask sends a message and waits for its answer. Events that come before it are noted.
func (b *browser) ask(method string, params map[string]any) (map[string]any, error) {
	b.n++
	message := map[string]any{"id": b.n, "method": method, "params": params}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	for err == nil {
		line, err := b.from.ReadBytes(0)
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     int            `json:"id"`
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
			Result map[string]any `json:"result"`
			Error  map[string]any `json:"error"`
		}
		if err := json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m); err != nil {
			return nil, err
		}
		switch m.Method {
		case "Network.requestWillBeSent":
			b.requests = append(b.requests, m.Params["request"].(map[string]any)["url"].(string))
		case "Runtime.exceptionThrown", "Log.entryAdded":
			b.faults = append(b.faults, fmt.Sprint(m.Params))
		}
		if m.ID == b.n && m.Error != nil {
			return nil, fmt.Errorf("%v", m.Error)
		}
		if m.ID == b.n {
			return m.Result, nil
		}
	}
	return nil, err
}

// js evaluates an expression in the page.
func (b *browser) js(expression string) any {
	b.t.Helper()
	answer := b.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	})
	require.Nil(b.t, answer["exceptionDetails"], expression)
	return answer["result"].(map[string]any)["value"]
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); b.js("!!("+expression+")") != true; {
		if time.Now().After(end) {
			require.Fail(b.t, "never true: "+expression, "%v\n%v", b.js("document.body.innerText"), b.faults)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// keys presses keys, one after the other.
func (b *browser) keys(names ...string) {
	b.t.Helper()
	codes := map[string]int{
		"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, "ArrowLeft": 37, "End": 35,
	}
	for _, name := range names {
		down := map[string]any{"type": "rawKeyDown", "key": name, "windowsVirtualKeyCode": codes[name]}
		if name == "Enter" {
			down["type"], down["text"] = "keyDown", "\r"
		}
		if len(name) == 1 {
			down["type"], down["text"] = "keyDown", name
		}
		b.call("Input.dispatchKeyEvent", down)
		down["type"] = "keyUp"
		b.call("Input.dispatchKeyEvent", down)
	}
}

// screen sets the size of the window, and the colours that the user prefers.
func (b *browser) screen(width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false})
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
}

// showAs chooses how bytes are shown.
func (b *browser) showAs(form string) {
	b.t.Helper()
	b.js(fmt.Sprintf(`{
		const choice = [...document.querySelectorAll('#main select')].at(-1);
		choice.value = %q;
		choice.dispatchEvent(new Event('change'));
	}`, form))
}

// picture stores a picture where -pictures says.
func (b *browser) picture(name string) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	data := b.call("Page.captureScreenshot", nil)["data"].(string)
	png, err := base64.StdEncoding.DecodeString(data)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600))
}

// open shows a view, and waits until it is there.
func (b *browser) open(view string) {
	b.t.Helper()
	b.js(fmt.Sprintf(`{
		const view = %q;
		$('main').replaceChildren();
		if (location.hash === '#' + view) draw();
		else location.hash = view;
	}`, view))
	b.until("document.querySelector('#main').children.length > 0")
}

// show serves a store to the browser, and opens the page.
func (b *browser) show(path string) {
	b.t.Helper()
	l, err := Listen("127.0.0.1:0")
	require.NoError(b.t, err)
	s := New(Options{Path: path}, l.Addr())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	b.t.Cleanup(func() {
		stop()
		require.NoError(b.t, <-ended)
		for _, address := range b.requests {
			ours := strings.HasPrefix(address, "http://"+s.host+"/")
			require.True(b.t, ours || address == "about:blank", address)
		}
		require.Empty(b.t, b.faults)
	})
	b.call("Page.navigate", map[string]any{"url": s.URL()})
	b.until("document.querySelector('#main table, #main .error')")
	require.Equal(b.t, false, b.js("location.href.includes('token')"), "the address may be seen, and kept")
}

const views = "families rows expiry pages trees log history"

const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`

// hostileStore has text that a page must not take for its own, a part of it in the log: it is open.
func hostileStore(t *testing.T) string {
	t.Helper()
	path := filled(t)
	db, err := kv.Open(path, nil)
	require.NoError(t, err)
	family := "<b>" + hostile[:60]
	require.NoError(t, db.CreateCF(family, kv.CFOptions{}))
	require.NoError(t, db.CF(family).PutTTL([]byte(hostile), []byte(hostile), time.Hour))
	require.NoError(t, db.Close())
	db, err = kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("key-"+hostile), []byte("\u202eright to left\x00")))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return path
}

// TestBrowser uses the page as a person would: with the keyboard, in wide and narrow windows.
func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	b.screen(1280, "light")
	b.show(hostileStore(t))
	b.until("document.body.innerText.includes('sessions')")
	b.picture("families")

	b.keys("/")
	b.until("document.activeElement.id === 'search'")
	b.call("Input.insertText", map[string]any{"text": "key-001"})
	const rows = "document.querySelectorAll('.rows tbody tr').length"
	b.until(rows + " === 10")
	require.Equal(t, true, b.js("location.hash.includes('prefix=key-001')"))
	b.until("document.querySelector('.rows td.bytes').innerText === 'key-0010'")
	b.showAs("hex")
	b.until("document.querySelector('.rows td.bytes').innerText === '6b65792d30303130'")
	b.showAs("json")
	b.js("document.querySelector('.rows button').focus()")
	b.keys("Enter")
	b.until("document.querySelector('#detail').open")
	b.until(`document.querySelector('#detail pre').innerText.includes('"big": 12345678901234567890')`)
	b.picture("value")
	b.keys("Escape")
	b.until("!document.querySelector('#detail').open")
	require.Equal(t, "key-0010", b.js("document.activeElement.innerText"), "focus goes back to the row")

	b.open("expiry?family=sessions")
	b.until("document.querySelectorAll('.bars div').length === 84")
	require.Equal(t, true, b.js("document.querySelectorAll('.bars .some').length > 40"))
	b.picture("expiry")
	b.js("window.before = document.querySelector('#main [data-at]').innerText")
	b.until("document.querySelector('#main [data-at]').innerText !== window.before")

	b.open("pages")
	b.js("document.querySelector('#map').focus()")
	b.keys("ArrowRight", "ArrowDown", "ArrowLeft", "End", "ArrowRight")
	b.until("document.querySelector('#about').innerText.startsWith('page ')")
	b.picture("pages")
	b.keys("Enter")
	b.until("document.querySelector('#detail').open")
	b.keys("Escape")
	b.until("!document.querySelector('#detail').open")

	for _, view := range strings.Fields(views) {
		for width, scheme := range map[int]string{1280: "light", 360: "dark"} {
			b.screen(width, scheme)
			b.open(view)
			require.LessOrEqual(t, b.js("document.documentElement.scrollWidth"), float64(width), view)
			require.Equal(t, float64(0), b.js("document.querySelectorAll('#main .error').length"), view)
			require.NotRegexp(t, `\[object|undefined|NaN`, b.js("document.body.innerText"), view)
			require.Equal(t, scheme == "dark", b.js(
				"getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/)[0] < 60"))
			b.picture(fmt.Sprintf("%s-%d-%s", view, width, scheme))
		}
	}
	require.Nil(t, b.js("window.hacked"), "text of the store is never markup")
	require.Equal(t, float64(0), b.js("document.querySelectorAll('#main img, #main script, #main b').length"))

	b.open("rows?family=default")
	b.js("document.querySelector('#refresh').focus()")
	var order []any
	for range 14 {
		order = append(order, b.js("(e => e.id || e.innerText.split('\\n')[0])(document.activeElement)"))
		require.NotEqual(t, "none", b.js("getComputedStyle(document.activeElement).outlineStyle"))
		b.keys("Tab")
	}
	require.Equal(t, []any{
		"refresh", "Families", "Rows", "Expiry", "Pages", "Trees", "Log", "History",
		order[8], "search", "text", "text", "key-0000", "key-0001",
	}, order)
}

// TestBrowserOnDamage shows a damaged file: the page that was hit is red and says why.
func TestBrowserOnDamage(t *testing.T) {
	b := startBrowser(t)
	path := filled(t)
	s := New(Options{Path: path}, place(testHost))
	var all pagesAnswer
	walked(t, s)
	get(t, s, "pages?n=4096", &all)
	require.NoError(t, s.Close())
	hit := -1
	for _, p := range all.Pages {
		if p.State == pageUsed && p.Kind == "leaf" && p.Tree == 0 {
			hit = int(p.Pgid)
		}
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content[hit*4096+2000] ^= 1
	require.NoError(t, os.WriteFile(path, content, 0o600))

	b.screen(1280, "light")
	b.show(path)
	b.until("document.querySelector('#status').innerText.includes('damaged')")
	b.open("pages")
	b.js("document.querySelector('#map').focus()")
	for range hit {
		b.keys("ArrowRight")
	}
	b.until(fmt.Sprintf("$('about').innerText.startsWith('page %d · leaf · BAD: ')", hit))
	red := `(() => {
		const d = $('map').getContext('2d').getImageData(0, 0, $('map').width, $('map').height).data;
		let n = 0;
		for (let i = 0; i < d.length; i += 4) if (d[i] === 198 && d[i+1] === 40 && d[i+2] === 40) n++;
		return n; })()`
	require.Greater(t, b.js(red), float64(50))
	b.picture("damaged-pages")
	b.open("rows?family=default")
	for b.js("[...document.querySelectorAll('#main > button')].at(-1).hidden") != true {
		n := b.js("document.querySelectorAll('.rows tr').length")
		b.js("[...document.querySelectorAll('#main > button')].at(-1).click()")
		b.until(fmt.Sprintf("document.querySelectorAll('.rows tr').length > %v", n))
	}
	require.Equal(t, true, b.js("document.querySelector('#main').innerText.includes('cannot be read here')"))
	b.js("document.querySelector('.gap').scrollIntoView()")
	b.picture("damaged-rows")
	clear(content[:8192])
	require.NoError(t, os.WriteFile(path, content, 0o600))
	b.js("new Promise(r => setTimeout(r, 600))") // an earlier state is still fresh
	b.keys("r")
	b.until("document.body.innerText.includes('neither meta page is valid')")
	for _, view := range strings.Fields(views) {
		b.open(view)
		b.picture("no-meta-" + view)
	}
	// Calls that need the rows, or the log, say why they have none.
	var complaints []string
	for _, fault := range b.faults {
		if !strings.Contains(fault, fmt.Sprint(http.StatusInternalServerError)) {
			complaints = append(complaints, fault)
		}
	}
	b.faults = complaints
}
