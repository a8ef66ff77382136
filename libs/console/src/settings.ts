/** What the member that serves the page says of it. */
export interface Settings {
  /** With `{trace_id}`; empty for no links to traces. */
  readonly traceUrl: string;
  /** The tenant that the operator's certificate is of; empty for an operator of the plane. */
  readonly tenant: string;
  /** The other members that the page's policy lets it ask, as origins. */
  readonly members: readonly string[];
}

export async function readSettings(): Promise<Settings> {
  const response = await fetch('/console/settings.json', { signal: AbortSignal.timeout(8000) });
  if (!response.ok) throw new Error(`settings.json: ${response.status} ${response.statusText}`);
  return (await response.json()) as Settings;
}
