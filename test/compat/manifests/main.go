// Command manifests reads Kubernetes objects as an API server does. `manifests decode` reads YAML documents from standard input and prints a
// line for each field that their kind does not have, or that has another type there. `manifests admit` reads a JSON object, the text of
// a ValidatingAdmissionPolicy and requests, and prints a line for each request: "not matched", "admitted", or why it is denied.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/cel-go/cel"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admission "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	run := map[string]func() error{"decode": decode, "admit": admit}[strings.Join(os.Args[1:], " ")]
	if run == nil {
		run = func() error { return errors.New("usage: manifests decode | admit") }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// decode prints nothing for an object that is right, and "not registered" for a kind that is not known here: Kubernetes' own, those of
// cert-manager, and those of the Prometheus Operator are.
func decode() error {
	for _, add := range []func(*runtime.Scheme) error{certmanager.AddToScheme, monitoring.AddToScheme, apiextensions.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return err
		}
	}
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		serializer.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, kind, err := strict.Decode(document, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
			fmt.Println(kind.GroupKind(), "not registered")
		case runtime.IsMissingKind(err): // a document of comments alone
		case err != nil:
			fmt.Println(kind, err)
		}
	}
}

type request struct {
	Request   map[string]any `json:"request"`
	Object    any            `json:"object"`
	OldObject any            `json:"oldObject"`
}

func admit() error {
	var input struct {
		Policy   string    `json:"policy"`
		Requests []request `json:"requests"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return err
	}
	var policy admission.ValidatingAdmissionPolicy
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), []byte(input.Policy), &policy); err != nil {
		return err
	}
	for _, request := range input.Requests {
		answer, err := review(policy.Spec, request)
		if err != nil {
			return err
		}
		fmt.Println(answer)
	}
	return nil
}

func review(spec admission.ValidatingAdmissionPolicySpec, request request) (string, error) {
	variables := map[string]any{}
	given := map[string]any{
		"request": request.Request, "object": request.Object, "oldObject": request.OldObject, "variables": variables,
	}
	for _, condition := range spec.MatchConditions {
		if matches, err := evaluate(condition.Expression, given); err != nil || matches != true {
			return "not matched", err
		}
	}
	for _, variable := range spec.Variables {
		value, err := evaluate(variable.Expression, given)
		if err != nil {
			return "", err
		}
		variables[variable.Name] = value
	}
	for _, validation := range spec.Validations {
		if valid, err := evaluate(validation.Expression, given); err != nil || valid != true {
			return "denied: " + validation.Message, err
		}
	}
	return "admitted", nil
}

// evaluate compiles an expression as an API server of the oldest supported version does.
func evaluate(expression string, given map[string]any) (any, error) {
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 30))
	var options []cel.EnvOption
	for name := range given {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	extended, err := base.Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options})
	if err != nil {
		return nil, err
	}
	env, err := extended.Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	value, _, err := program.Eval(given)
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}
