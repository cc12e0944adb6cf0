/** How figures are written: short, the same everywhere in the panel. */

/** Return a number of tokens with its thousands apart. */
export function tokens(count: number): string {
  return Math.round(count).toLocaleString('en-US');
}

/** Return a share as whole per cent, at least 1 when it is not nothing. */
export function percent(part: number, whole: number): number {
  if (whole <= 0 || part <= 0) {
    return 0;
  }
  return Math.max(1, Math.round((100 * part) / whole));
}

/** Return an amount of US dollars as the reports write it: four places below ten dollars, two above. */
export function dollars(usd: number): string {
  const places = usd < 10 ? 4 : 2;
  return `$${usd.toLocaleString('en-US', { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}
