import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { isthmusHold, PROGRAMS } from '@isthmus/flags';
import { objects } from '../k8s/chart.ts';
import { type Container, type Manifest, root } from '../k8s/manifests.ts';
import type { CommandLine } from './command-lines.ts';

const FOLDER = join(root, 'k8s/recipes');

export const RECIPES: readonly string[] = readdirSync(FOLDER).filter((name) =>
  existsSync(join(FOLDER, name, 'README.md')),
);

/** Paths of files below a recipe, from the repository's root. */
export function filesOf(recipe: string, extension: string): string[] {
  const found = readdirSync(join(FOLDER, recipe), { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isFile() && entry.name.endsWith(extension))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length))
    .sort();
}

/** What a pod of a recipe has that the tests look at. Unlike our own manifests, those of others leave out what has a default. */
export interface RecipePod {
  readonly file: string;
  /** Unset in a patch. */
  readonly containers?: readonly RecipeContainer[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string; readonly type?: string };
  }[];
}

export interface RecipeContainer extends Partial<Pick<Container, 'livenessProbe' | 'ports'>> {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string }[];
}

/** The pods of a recipe's own files, and those in the templates of its workloads. */
export function podsOf(recipe: string): RecipePod[] {
  return filesOf(recipe, '.yaml').flatMap((file) =>
    objects(readFileSync(join(root, file), 'utf8')).flatMap((object) => {
      const spec = podSpec(object);
      return spec ? [{ ...spec, file }] : [];
    }),
  );
}

function podSpec({ kind, spec }: Manifest): Omit<RecipePod, 'file'> | undefined {
  if (kind === 'Pod') return spec;
  if (kind === 'TenantControlPlane') {
    const { additionalContainers: containers, additionalVolumes: volumes } = spec.controlPlane.deployment;
    return { containers, volumes };
  }
  return /^(Deployment|DaemonSet|StatefulSet)$/.test(kind) ? spec.template?.spec : undefined;
}

/** Returns the program that a container runs, or undefined if it is not one of ours. */
export function programOf({ image, command }: RecipeContainer): (typeof PROGRAMS)[number] | undefined {
  if (command?.join(' ') === isthmusHold.name) return isthmusHold;
  const name = command ? basename(command[0] ?? '') : basename(image).split(':')[0];
  return PROGRAMS.find((program) => program.name === name);
}

/** A container's arguments, with its variables replaced as the kubelet does it. One without a value in the manifest becomes its own name. */
export function argsOf({ args = [], env = [] }: RecipeContainer): string[] {
  const values = new Map(env.map(({ name, value = name.toLowerCase().replaceAll('_', '-') }) => [name, value]));
  return args.map((arg) => arg.replaceAll(/\$\((\w+)\)/g, (whole, name) => values.get(name) ?? whole));
}

/** The command lines in a recipe's own manifests, or in those whose path contains `part`. */
export function commandLinesOf(recipe: string, part = ''): CommandLine[] {
  const pods = podsOf(recipe).filter(({ file }) => file.includes(part));
  return pods.flatMap(({ containers = [] }) =>
    containers.flatMap((container) => {
      const program = programOf(container)?.name;
      return program === 'proxy-server' || program === 'proxy-agent'
        ? [{ recipe, program, args: argsOf(container) }]
        : [];
    }),
  );
}

/** The command lines of a recipe's systemd units. */
export function unitsOf(recipe: string): CommandLine[] {
  return filesOf(recipe, '.service').map((file) => {
    const text = readFileSync(join(root, file), 'utf8').replaceAll(/\\\n\s*/g, ' ');
    const [path = '', ...args] = /^ExecStart=(.*)$/m.exec(text)?.[1]?.split(/\s+/) ?? [];
    const program = basename(path);
    if (program !== 'proxy-server' && program !== 'proxy-agent') throw new Error(`${file} starts ${path}`);
    return { recipe, program, args };
  });
}
