package resp

import "strings"

const unbalanced = ProtocolError("unbalanced quotes in request")

// splitInline splits the line of an inline command: arguments are separated by spaces, double
// quotes know the escapes \n \r \t \b \a \xHH, single quotes know \'.
func splitInline(line []byte) (args [][]byte, err error) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return args, nil
		}
		var arg []byte
		arg, i, err = inlineArgument(line, i)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
}

// inlineArgument returns the argument that begins at i, and the position behind it.
func inlineArgument(line []byte, i int) (arg []byte, next int, err error) {
	arg = []byte{}
	for ; i < len(line) && !isSpace(line[i]); i++ {
		quote := line[i]
		if quote != '"' && quote != '\'' {
			arg = append(arg, quote)
			continue
		}
		i++
		for ; i < len(line) && line[i] != quote; i++ {
			var c byte
			c, i = unescape(line, i, quote)
			arg = append(arg, c)
		}
		// A closing quote ends the argument.
		if i >= len(line) || i+1 < len(line) && !isSpace(line[i+1]) {
			return nil, 0, unbalanced
		}
	}
	return arg, i, nil
}

// unescape returns the byte that begins at i within quotes, and the position of its last one.
func unescape(line []byte, i int, quote byte) (c byte, last int) {
	if line[i] != '\\' || i+1 >= len(line) {
		return line[i], i
	}
	next := line[i+1]
	if quote == '\'' {
		if next == '\'' {
			return next, i + 1
		}
		return line[i], i
	}
	if next == 'x' && i+3 < len(line) && isHex(line[i+2]) && isHex(line[i+3]) {
		return hexDigit(line[i+2])<<4 | hexDigit(line[i+3]), i + 3
	}
	if at := strings.IndexByte("nrtba", next); at >= 0 {
		return "\n\r\t\b\a"[at], i + 1
	}
	return next, i + 1
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func hexDigit(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
