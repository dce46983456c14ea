package kit

import "testing"

func TestSumOf(t *testing.T) {
	const text = `# HELP n Something.
# TYPE n counter
n{server="a",to="down"} 2
n{server="b",to="down"} 1
n{server="b",to="up"} 10
n_total 5
plain 1.5e+07
`
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"n", nil, 13}, {"n", []string{`to="down"`}, 3}, {"n", []string{`server="b"`, `to="down"`}, 1},
		{"n", []string{`to="x"`}, 0},
		{"plain", nil, 1.5e7}, {"none", nil, 0}, {"n", []string{`own"`}, 0},
	} {
		if got, err := SumOf(text, tt.name, tt.labels); got != tt.want || err != nil {
			t.Errorf("%s%v is %v, %v; want %v", tt.name, tt.labels, got, err, tt.want)
		}
	}
	if _, err := SumOf("n many\n", "n", nil); err == nil {
		t.Error("a value that is no number is taken")
	}
}
