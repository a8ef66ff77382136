/** Server names (SNI) and the tenants that they select. The longest pattern wins. */
export class ServerNames {
  readonly #exact = new Map<string, string>();
  /** By what follows the star and its dot. */
  readonly #below = new Map<string, string>();

  /** @param pattern a DNS name, or `*.` and one */
  add(pattern: string, tenant: string): void {
    const [names, name] = this.#place(pattern);
    names.set(name, tenant);
  }

  remove(pattern: string): void {
    const [names, name] = this.#place(pattern);
    names.delete(name);
  }

  find(serverName: string): string | undefined {
    const name = canonical(serverName);
    const exact = this.#exact.get(name);
    if (exact !== undefined) return exact;
    for (let dot = name.indexOf('.'); dot !== -1; dot = name.indexOf('.', dot + 1)) {
      const found = this.#below.get(name.slice(dot + 1));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #place(pattern: string): [Map<string, string>, string] {
    const name = canonical(pattern);
    return name.startsWith('*.') ? [this.#below, name.slice(2)] : [this.#exact, name];
  }
}

/** Server names that select the same tenant have the same canonical form. */
export function canonical(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
