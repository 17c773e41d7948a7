// Renders the templates of a chart as Helm does: Go's text/template with Sprig, and Helm's own
// functions as far as our chart uses them. Reads {"templates", "files", "context"} as JSON from
// standard input and writes the rendered templates as JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type request struct {
	Templates map[string]string
	Files     map[string]string
	Context   map[string]interface{}
}

type files map[string]string

// Get gives the text of a file of the chart, nothing where there is none.
func (f files) Get(name string) string { return f[name] }

func main() {
	decoder := json.NewDecoder(os.Stdin)
	decoder.UseNumber()
	var asked request
	check(decoder.Decode(&asked))
	context := plain(asked.Context).(map[string]interface{})
	context["Files"] = files(asked.Files)

	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = toYaml
	functions["required"] = required
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all.Funcs(functions)
	for name, text := range asked.Templates {
		template.Must(all.New(name).Parse(text))
	}
	rendered := map[string]string{}
	for name := range asked.Templates {
		var text strings.Builder
		check(all.ExecuteTemplate(&text, name, context))
		rendered[name] = text.String()
	}
	check(json.NewEncoder(os.Stdout).Encode(rendered))
}

func toYaml(value interface{}) (string, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}

func required(message string, value interface{}) (interface{}, error) {
	if value == nil || value == "" {
		return nil, fmt.Errorf("%s", message)
	}
	return value, nil
}

// plain makes whole numbers of numbers that are.
func plain(value interface{}) interface{} {
	switch found := value.(type) {
	case json.Number:
		if whole, err := found.Int64(); err == nil {
			return whole
		}
		real, err := found.Float64()
		check(err)
		return real
	case map[string]interface{}:
		for key := range found {
			found[key] = plain(found[key])
		}
	case []interface{}:
		for i := range found {
			found[i] = plain(found[i])
		}
	}
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
