const SIZE = /^(\d+(?:\.\d+)?)\s*(k|M|G|Ki|Mi|Gi)?B?$/;
const FACTORS: Readonly<Record<string, number>> = {
  k: 1e3,
  M: 1e6,
  G: 1e9,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
};

/** @returns the number of bytes that a text such as `200MB` means; NaN if it means none */
export function bytesOf(value: string | number): number {
  const [, digits, unit = ''] = SIZE.exec(String(value)) ?? [];
  return Math.round(Number(digits ?? Number.NaN) * (FACTORS[unit] ?? 1));
}
