type Values<Enum, Prefix extends string> = {
  readonly [Name in keyof Enum as Name extends `${Prefix}_${infer Rest}` ? Lowercase<Rest> : never]: Enum[Name];
};

/** The names of an enum's values, as programs and people write them: `hub` for `ROLE_HUB`. */
export type EnumName<Enum, Prefix extends string> = Exclude<keyof Values<Enum, Prefix>, 'unspecified'>;

/** Returns the values of an enum by their names. */
export function valuesOf<const Enum extends Readonly<Record<string, number>>, const Prefix extends string>(
  type: Enum,
  prefix: Prefix,
): Values<Enum, Prefix> {
  const named = Object.entries(type).map(([name, value]) => [name.slice(prefix.length + 1).toLowerCase(), value]);
  return Object.fromEntries(named);
}

/** Returns the names of an enum's values; undefined for a value that is unspecified, or of a later version. */
export function namesOf<const Enum extends Readonly<Record<string, number>>, const Prefix extends string>(
  type: Enum,
  prefix: Prefix,
): Readonly<Record<number, EnumName<Enum, Prefix>>> {
  const named = Object.entries(valuesOf(type, prefix)).filter(([name]) => name !== 'unspecified');
  return Object.fromEntries(named.map(([name, value]) => [value, name as EnumName<Enum, Prefix>]));
}
