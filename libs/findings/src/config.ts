import type { Evidence } from './evidence.ts';
import { type Result, reportOf } from './result.ts';

/** A flag whose value differs between replicas of one program. */
export interface Difference {
  readonly program: string;
  readonly flag: string;
  readonly values: readonly { readonly member: string; readonly value: string }[];
}

interface Replica {
  readonly member: string;
  readonly program: string;
  readonly flags: readonly { readonly name: string; readonly value: string }[];
}

/** Flags that differ between replicas by nature: identity, addresses, certificates, verbosity. */
const OWN =
  /^(server-id|agent-id|zone|uds-name|v|kubeconfig|proxy-server-(host|port)|log-.*|.*-(port|address|host|cert|key)|advertise-.*)$/;

export function differencesOf(members: readonly Replica[]): Difference[] {
  const programs = new Set(members.map(({ program }) => program));
  return [...programs].flatMap((program) => {
    const replicas = members.filter((member) => member.program === program);
    const names = new Set(replicas.flatMap(({ flags }) => flags.map(({ name }) => name)));
    return [...names]
      .filter((name) => !OWN.test(name))
      .map((flag) => ({
        program,
        flag,
        values: replicas.map(({ member, flags }) => ({ member, value: valueIn(flags, flag) })),
      }))
      .filter(({ values }) => new Set(values.map(({ value }) => value)).size > 1);
  });
}

/** Returns '' for an older replica that does not know the flag. */
function valueIn(flags: Replica['flags'], name: string): string {
  return flags.find((flag) => flag.name === name)?.value ?? '';
}

export function ofConfig({ members }: Evidence): Result[] {
  const report = reportOf('config');
  const replicas = members.flatMap(({ id: member, config }) => (config ? [{ member, ...config }] : []));
  const differences = differencesOf(replicas);
  if (differences.length === 0)
    return replicas.length > 1 ? [report.pass('members', 'replicas have the same flags')] : [];
  return differences.map(({ program, flag, values }) => {
    const list = values.map(({ member, value }) => `${value || '(empty)'} at ${member}`).join(', ');
    return report.warn(program, `--${flag} is ${list}`, 'set it alike on all replicas, unless they should differ');
  });
}
