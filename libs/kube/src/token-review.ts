import type { KubeClient } from './client.ts';
import { messageOf } from './connection.ts';

export interface TokenAuthenticatorOptions {
  readonly client: KubeClient;
  /** Namespace of the agents' service account (`--agent-namespace`). */
  readonly namespace: string;
  /** `--agent-service-account` */
  readonly serviceAccount: string;
  /** Audience that the agents' tokens must have (`--authentication-audience`). */
  readonly audience: string;
}

export type TokenVerdict =
  | { readonly ok: true }
  /** `reviewed` unless the API server did not answer. The token may then be valid the next time. */
  | { readonly ok: false; readonly reviewed: boolean; readonly message: string };

interface TokenReview {
  readonly status?: {
    readonly authenticated?: boolean;
    readonly error?: string;
    readonly audiences?: readonly string[];
    readonly user?: { readonly username?: string };
  };
}

/**
 * Asks the API server in one TokenReview whether a token belongs to the agents' service account, as upstream does. Never rejects: if
 * the API server does not answer, the token is refused with that as the message.
 */
export function tokenAuthenticator(options: TokenAuthenticatorOptions): (token: string) => Promise<TokenVerdict> {
  const { client, audience } = options;
  return async (token) => {
    const review = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenReview',
      spec: { token, audiences: [audience] },
    };
    try {
      const path = '/apis/authentication.k8s.io/v1/tokenreviews';
      const message = refusal(await client.request<TokenReview>({ method: 'POST', path, body: review }), options);
      return message === undefined ? { ok: true } : { ok: false, reviewed: true, message: `lookup failed: ${message}` };
    } catch (error) {
      return { ok: false, reviewed: false, message: `the token could not be reviewed: ${messageOf(error)}` };
    }
  };
}

/** Returns why a reviewed token is refused, in upstream's words if it has any, or undefined if it is valid. */
function refusal({ status }: TokenReview, options: TokenAuthenticatorOptions): string | undefined {
  const { namespace, serviceAccount, audience } = options;
  if (status?.error) return status.error;
  if (status?.authenticated !== true) return 'service account jwt not valid';
  // An API server that names no audiences has checked none: the token may be meant for the API server itself.
  const { audiences = [], user } = status;
  if (audiences.length === 0) return `the API server did not check that the token is for audience ${quote(audience)}`;
  if (!audiences.includes(audience)) return `token is not for audience ${quote(audience)}`;
  // system:serviceaccount:NAMESPACE:NAME
  const [system, kind, tokenNamespace, name, ...rest] = (user?.username ?? '').split(':');
  if (name === undefined || rest.length > 0) return 'unexpected username format';
  if (system !== 'system' || kind !== 'serviceaccount') return 'username returned is not a service account';
  if (tokenNamespace !== namespace) return mismatch(tokenNamespace ?? '', 'namespace', namespace);
  if (name !== serviceAccount) return mismatch(name, 'service account', serviceAccount);
  return undefined;
}

function mismatch(actual: string, what: string, expected: string): string {
  return `incoming request from ${quote(actual)} ${what}. Expected ${quote(expected)}`;
}

function quote(text: string): string {
  return JSON.stringify(text);
}
