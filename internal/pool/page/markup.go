package page

import (
	"strings"

	"golang.org/x/net/html"
)

// part is something that an element is made of.
type part interface{ into(element *html.Node) }

// text is text, whatever is in it.
type text string

func (t text) into(element *html.Node) {
	element.AppendChild(&html.Node{Type: html.TextNode, Data: string(t)})
}

// attr is an attribute. An empty class is none.
type attr struct{ key, value string }

func (a attr) into(element *html.Node) {
	if a == (attr{key: "class"}) {
		return
	}
	element.Attr = append(element.Attr, html.Attribute{Key: a.key, Val: a.value})
}

// node is an element.
type node struct{ *html.Node }

func (n node) into(element *html.Node) { element.AppendChild(n.Node) }

// parts are several.
type parts []part

func (all parts) into(element *html.Node) {
	for _, p := range all {
		if p != nil {
			p.into(element)
		}
	}
}

// el returns an element. The parameter what is its tag with classes, such as "td.num". It must be a constant, so that nobody
// else's text gets into it.
func el(what string, of ...part) node {
	tag, classes, _ := strings.Cut(what, ".")
	n := node{&html.Node{Type: html.ElementNode, Data: tag}}
	if classes != "" {
		attr{"class", strings.ReplaceAll(classes, ".", " ")}.into(n.Node)
	}
	parts(of).into(n.Node)
	return n
}
