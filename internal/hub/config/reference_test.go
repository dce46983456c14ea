package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	apps "yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/hub/v1alpha1"
)

const reference = "../../../docs/settings.md"

// why is the last column of each table of the reference. enough is how many bytes an answer has at least.
const why, enough = "who sets it, and why", 15

var quoted = regexp.MustCompile("`([^`]+)`")

// answers returns who sets each setting and why, as the reference page says. The key is the table's first word in backticks, or
// "flag", and the name in a row's first cell. For a flag of a pool's setting, the name is in the second cell.
func answers(page string) map[string]string {
	all := map[string]string{}
	table := ""
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		head, last := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[len(cells)-1])
		switch {
		case !strings.HasPrefix(line, "|"):
			table = ""
		case last == why:
			table = "flag"
			if of := quoted.FindStringSubmatch(head); of != nil {
				table = of[1]
			}
		case table != "" && !strings.HasPrefix(head, "---"):
			for _, name := range quoted.FindAllStringSubmatch(head, -1) {
				all[table+" "+name[1]] = last
			}
			for _, flag := range quoted.FindAllStringSubmatch(cells[1], -1) {
				if table == "hub" {
					all["flag "+flag[1]] = last
				}
			}
		}
	}
	return all
}

// settable returns what a user can set, named as answers does.
func settable() (all []string) {
	fields := func(table string, of reflect.Type) {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			all = append(all, table+" "+name)
		}
	}
	fields("spec", reflect.TypeFor[apps.PoolSettingsSpec]())
	fields("hub", reflect.TypeFor[v1alpha1.HubSettings]())
	fields("spec.coordinator", reflect.TypeFor[apps.CoordinatorSettings]())
	fields("spec.coordinator", reflect.TypeFor[apps.CoordinatorResources]())
	fields("spec.upgrade", reflect.TypeFor[apps.UpgradeSettings]())
	fields("spec.upgrade", reflect.TypeFor[apps.UpgradeWindow]())
	new(Config).flagSet().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, "flag --"+f.Name)
		}
	})
	return all
}

// TestEachSettingHasSomebodyWhoSetsIt: the reference names for each setting who sets it and why; a setting that nobody needs
// should be removed. A setting for tests alone is hidden, and says so.
func TestEachSettingHasSomebodyWhoSetsIt(t *testing.T) {
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	said := answers(string(page))
	for _, name := range settable() {
		if len(said[name]) < enough {
			t.Errorf("%s does not tell who sets %s, and why", reference, name)
		}
		delete(said, name)
	}
	delete(said, "flag -v") // another name of --v
	for name := range said {
		t.Errorf("%s tells who sets %s, which does not exist", reference, name)
	}
	new(Config).flagSet().VisitAll(func(f *pflag.Flag) {
		if f.Hidden && !strings.HasSuffix(f.Usage, "for tests") {
			t.Errorf("--%s is hidden, and not for tests", f.Name)
		}
	})
}

// TestAnswers: a row without an answer, or of a table that asks for none, gives none.
func TestAnswers(t *testing.T) {
	got := answers("| setting in `hub` | flag | who sets it, and why |\n| --- | --- | --- |\n" +
		"| `a` | `--a` | me |\n| `b` | `--b` | |\n" +
		"\n| `c` | is |\n| --- | --- |\n| `d` | no |\n\n| flag | who sets it, and why |\n| --- | --- |\n| `--e`, `--f` | you |\n")
	want := map[string]string{
		"hub a": "me", "flag --a": "me", "hub b": "", "flag --b": "", "flag --e": "you", "flag --f": "you",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
