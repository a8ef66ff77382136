import { parse } from 'yaml';

/** What reviewed tokens must be for, and whose, unless a tenant's file says something else: what ANP's manifests have. */
export const REVIEW_DEFAULTS = {
  audience: 'system:konnectivity-server',
  namespace: 'kube-system',
  serviceAccount: 'konnectivity-agent',
} as const;

interface Kubeconfig {
  readonly 'current-context'?: unknown;
  readonly contexts?: readonly { readonly name?: unknown; readonly context?: { readonly cluster?: unknown } }[];
  readonly clusters?: readonly { readonly name?: unknown; readonly cluster?: { readonly server?: unknown } }[];
}

/** The URL of the API server that a kubeconfig's current context asks; undefined if it names none. Who uses the file says what is wrong. */
export function apiServerIn(kubeconfig: string): string | undefined {
  try {
    const { 'current-context': current, contexts, clusters } = parse(kubeconfig) as Kubeconfig;
    const used = contexts?.find(({ name }) => name === current)?.context?.cluster;
    const server = clusters?.find(({ name }) => name === used)?.cluster?.server;
    return typeof server === 'string' ? new URL(server).href : undefined;
  } catch {
    return undefined;
  }
}
