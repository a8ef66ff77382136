import { HTTP_CREDENTIAL } from '@isthmus/tunnel';

/** What a secret looks like, and what stands in its place. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN ([A-Z ]*)PRIVATE KEY-----[\s\S]*?(-----END \1PRIVATE KEY-----|$)/g, '[private key left out]'],
  // The user and password in a URL.
  [/([a-z][a-z+.-]*:\/\/)[^/\s"'@]*:[^/\s"'@]*@/gi, '$1***@'],
  [HTTP_CREDENTIAL, '$1 ***'],
  // A JSON Web Token, as Kubernetes' service accounts have.
  [/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, '[token left out]'],
  // `password=...`, `"token": "..."`.
  [/(\b(?:password|passwd|secret|token|authorization|api[-_]?key)\b["']?\s*[:=]\s*["']?)[^\s"',;&]{4,}/gi, '$1***'],
];

/** Removes secrets. Members already leave them out of their answers; this second pass catches those that a log may still contain. */
export function scrubbed(text: string): string {
  return SECRETS.reduce((shown, [secret, instead]) => shown.replace(secret, instead), text);
}
