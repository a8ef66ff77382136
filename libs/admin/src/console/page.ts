import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { PageFiles } from '@isthmus/console';
import { NOT_FOUND, send } from '@isthmus/service';

/** Of every answer. */
export const SAFE_HEADERS = {
  'cache-control': 'no-cache',
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
} as const;

/** Nothing but the page's own files, nothing inline, no text that becomes markup, no frame around it. */
function policy(members: readonly string[]): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    ["connect-src 'self'", ...members].join(' '),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

/** Sends one of the page's files, or 304 to a browser that has it. @param members origins that the page may ask */
export async function sendFile(
  { headers }: IncomingMessage,
  response: ServerResponse,
  file: PageFiles[string] | undefined,
  members: readonly string[],
): Promise<void> {
  if (!file) return send(response, NOT_FOUND);
  const etag = `"${createHash('sha256').update(file.body).digest('base64url')}"`;
  const common = {
    ...SAFE_HEADERS,
    etag,
    'content-security-policy': policy(members),
    'cross-origin-resource-policy': 'same-origin',
  };
  if (headers['if-none-match'] === etag) {
    response.writeHead(304, common).end();
    return;
  }
  return send(response, { status: 200, body: file.body, headers: { ...common, 'content-type': file.type } });
}
