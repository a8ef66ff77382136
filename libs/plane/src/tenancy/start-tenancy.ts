import { resolve } from 'node:path';
import { authorityOf, type FileProblems, Grants } from '@isthmus/admission';
import { problemText } from '@isthmus/admission/basics';
import { type ServerValues, tlsPolicy } from '@isthmus/flags';
import { guarding } from '@isthmus/runtime';
import type { Closing } from '@isthmus/service';
import type { PlaneEvents } from '@isthmus/tunnel';
import { AgentTokens } from '../tokens/agent-tokens.ts';
import { portTls } from './port-tls.ts';
import { ProgramBundles } from './program-bundles.ts';
import type { Tenancy, TenantsChange } from './tenancy.ts';
import { tenantsCheck } from './tenants-check.ts';
import { followTenants } from './tenants-dir.ts';
import { certificateOf, TlsChoices } from './tls-choices.ts';

export interface TenancyParts {
  readonly closing: Closing;
  readonly events: PlaneEvents;
  /** How often files are checked for changes, in milliseconds. Default: tenants' files every 2 s, the files that they name every 4 s. */
  readonly pollMs?: number | undefined;
}

export type TenancyFlags = Pick<ServerValues, 'tenants-dir' | 'cipher-suites' | 'tls-min-version'> &
  // A gateway has no flags of agents, nor a hub of callers.
  Partial<Pick<ServerValues, 'cluster-ca-cert' | 'server-ca-cert' | 'token-review-cache-ttl'>>;

/**
 * Follows the tenants of --tenants-dir.
 * @throws Error if the directory or one of the program's CA bundles cannot be read
 */
export async function startTenancy(flags: TenancyFlags, { closing, events, pollMs }: TenancyParts): Promise<Tenancy> {
  const dir = resolve(flags['tenants-dir']);
  const listeners = new Set<(change: TenantsChange) => void>();
  const choices = new TlsChoices(tlsPolicy(flags));
  const report = reporter(events);
  const guarded = guarding((error) => void events.emit('fault', 'tenants', '', error));
  const changed = (change: TenantsChange) => {
    const names = [...change.changed, ...change.gone];
    choices.forget(names);
    tokens?.update(names);
    grants.review(names);
    for (const listener of listeners) guarded(listener)(change);
  };
  const early: TenantsChange[] = [];
  let started = (change: TenantsChange) => void early.push(change);
  let alsoFailing = (): readonly FileProblems[] => [];
  const directory = await followTenants({
    dir,
    pollMs,
    changed: (change) => started(change),
    failing: (found) => report.problems([...found, ...alsoFailing()]),
  }).catch((error: Error) => {
    throw new Error(`--tenants-dir ${dir} cannot be read: ${error.message}`, { cause: error });
  });
  closing.defer(() => directory.close());
  const { tenants } = directory;
  const grants = new Grants({ tenant: (name) => tenants.get(name) });
  closing.defer(() => grants.close());
  const problems = () => [...directory.problems, ...alsoFailing()];
  const rememberMs = flags['token-review-cache-ttl'];
  const tokens =
    rememberMs === undefined
      ? undefined
      : new AgentTokens({
          tenant: (name) => tenants.get(name),
          path: (named) => resolve(dir, named),
          rememberMs,
          changed(names) {
            grants.review(names);
            report.problems(problems());
          },
        });
  closing.defer(() => tokens?.close());
  alsoFailing = () => tokens?.problems ?? [];
  const bundles = new ProgramBundles({
    paths: { agent: flags['cluster-ca-cert'] ?? '', caller: flags['server-ca-cert'] ?? '' },
    changed: () => changed({ changed: [...tenants.all].map(({ name }) => name), gone: [] }),
    events,
    pollMs,
  });
  closing.defer(() => bundles.close());
  started = (change) => {
    changed(change);
    report.change(change, tenants.size);
  };
  for (const change of early) started(change);
  const onChange: Tenancy['onChange'] = (listener) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return {
    tenants,
    tenant: (name) => tenants.get(name),
    get problems() {
      return problems();
    },
    get check() {
      return tenantsCheck(tenants.size, problems());
    },
    authority: authorityOf({ tenants, grants, ...(tokens && { tokens }), bundles: (role) => bundles.of(role) }),
    chooseTls(serverName) {
      const tenant = tenants.byServerName(serverName);
      return tenant && choices.of(tenant);
    },
    portTls(name, own) {
      const current = () => {
        const tenant = tenants.get(name);
        return tenant && certificateOf(tenant);
      };
      return portTls({ current, onChange, own });
    },
    onChange,
  };
}

/** Emits events for changes of tenants' files, and for their problems. Each problem is reported once. */
function reporter(events: PlaneEvents) {
  let reported = new Set<string>();
  return {
    change({ changed, gone }: TenantsChange, inForce: number) {
      events.emit('tenants', { changed, gone, inForce });
    },
    problems(problems: readonly FileProblems[]) {
      const texts = new Set<string>();
      for (const { path, problems: found, kept } of problems) {
        for (const problem of found) {
          const text = problemText(path, problem);
          texts.add(text);
          if (!reported.has(text)) events.emit('tenants:failure', text, kept);
        }
      }
      reported = texts;
    },
  };
}
