package main

import (
	"errors"
	"strconv"
	"strings"
)

// splitWords splits a line of the shell. 'Single quotes' hold a word as it is, "double quotes" as a
// Go string. A line that begins with # has none.
func splitWords(line string) (words []string, err error) {
	for rest := strings.TrimLeft(line, " \t"); rest != "" && (len(words) > 0 || rest[0] != '#'); {
		var word string
		if word, rest, err = cutWord(rest); err != nil {
			return nil, err
		}
		words = append(words, word)
		rest = strings.TrimLeft(rest, " \t")
	}
	return words, nil
}

// cutWord cuts the first word off text, which begins with one.
func cutWord(text string) (word, rest string, err error) {
	for text != "" && text[0] != ' ' && text[0] != '\t' {
		switch text[0] {
		case '\'':
			inside, behind, ok := strings.Cut(text[1:], "'")
			if !ok {
				return "", "", errors.New("a ' has no other one behind it")
			}
			word, text = word+inside, behind
		case '"':
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return "", "", errors.New(`what follows a " is no Go string`)
			}
			inside, _ := strconv.Unquote(quoted) // QuotedPrefix has looked at it.
			word, text = word+inside, text[len(quoted):]
		default:
			n := strings.IndexAny(text, " \t'\"")
			if n < 0 {
				n = len(text)
			}
			word, text = word+text[:n], text[n:]
		}
	}
	return word, text, nil
}

// quoteWord is the word as splitWords takes it.
func quoteWord(word string) string {
	if word == "" || strings.ContainsAny(word, " \t'\"") || strings.HasPrefix(word, "#") {
		return strconv.Quote(word)
	}
	return word
}

// lastWord splits a line before the word that is being typed, which may lack its closing quote.
func lastWord(line string) (before []string, at int, word string) {
	for rest := line; ; {
		trimmed := strings.TrimLeft(rest, " \t")
		at = len(line) - len(trimmed)
		next, behind, err := cutWord(trimmed)
		if err != nil {
			return before, at, strings.Trim(trimmed, `'"`)
		}
		if behind == "" {
			return before, at, next
		}
		before, rest = append(before, next), behind
	}
}
