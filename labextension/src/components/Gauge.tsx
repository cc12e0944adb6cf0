/** How full the context is, of what, and what it cost. */

import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { dollars, percent, tokens } from '../format.js';
import { CATEGORIES, HUES, type GaugePart } from '../protocol.js';
import type { PartProps } from './shared.js';

const MODES = ['ask', 'auto', 'plan'];

export const Gauge = React.memo(function Gauge(props: {
  gauge: GaugePart;
  trans: TranslationBundle;
}): JSX.Element {
  const { gauge, trans } = props;
  const { usedTokens, windowTokens, thresholdTokens } = gauge;
  const share = percent(usedTokens, windowTokens);
  const said = trans.__(
    '%1 of %2 tokens, %3 %',
    tokens(usedTokens),
    tokens(windowTokens),
    share
  );
  const whole = Math.max(windowTokens, usedTokens); // also of a context that does not fit
  const present = gauge.categories.filter(([, size]) => size > 0);
  const over = thresholdTokens > 0 && usedTokens >= thresholdTokens;
  return (
    <div className="nbagent-Gauge">
      <div
        className={`nbagent-Bar${over ? ' nbagent-mod-over' : ''}`}
        role="meter"
        aria-label={trans.__('Context used')}
        aria-valuemin={0}
        aria-valuemax={windowTokens}
        aria-valuenow={Math.min(usedTokens, windowTokens)}
        aria-valuetext={said}
      >
        {present.map(([name, size]) => (
          <span
            key={name}
            className="nbagent-Bar-part"
            style={{
              width: `${width(size, whole)}%`,
              background: colour(name)
            }}
            title={`${name}: ${tokens(size)}`}
          />
        ))}
        {thresholdTokens > 0 && windowTokens > 0 ? (
          <span
            className="nbagent-Bar-mark"
            style={{ left: `${width(thresholdTokens, whole)}%` }}
            title={trans.__('Compaction at %1 tokens', tokens(thresholdTokens))}
          />
        ) : null}
      </div>
      <p className="nbagent-Figures">
        <strong>{said.replace(/ %$/, '\u00a0%')}</strong>
        {gauge.estimated ? ` ${trans.__('(estimated)')}` : ''}
      </p>
      <dl className="nbagent-Facts">
        <Fact
          name={trans.__('Compacts at')}
          value={
            thresholdTokens > 0
              ? trans.__('%1 tokens', tokens(thresholdTokens))
              : '–'
          }
        />
        <Fact name={trans.__('Level')} value={`${gauge.level} / 10`} />
        <Fact
          name={trans.__('Cache hits')}
          value={
            gauge.cacheHitRate === null
              ? '–'
              : `${Math.round(100 * gauge.cacheHitRate)} %`
          }
        />
        <Fact name={trans.__('Session cost')} value={dollars(gauge.costUsd)} />
        <Fact name={trans.__('Model')} value={gauge.model || '–'} />
      </dl>
      {present.length > 0 ? (
        <table className="nbagent-Table">
          <caption className="nbagent-Hidden">
            {trans.__('What the context holds, in tokens')}
          </caption>
          <tbody>
            {present.map(([name, size]) => (
              <tr key={name}>
                <th scope="row">
                  <span
                    aria-hidden="true"
                    className="nbagent-Swatch"
                    style={{ background: colour(name) }}
                  />
                  {name}
                </th>
                <td>{tokens(size)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : null}
    </div>
  );
});

/** The policy and the permission mode of the turns to come. */
export function Settings({ session, trans }: PartProps): JSX.Element {
  const { policy, mode } = session.state.gauge;
  const modes = MODES.includes(mode) || mode === '' ? MODES : [mode, ...MODES];
  const known = session.state.gauge.policies;
  const policies = known.includes(policy) ? known : [policy, ...known];
  return (
    <div className="nbagent-Settings">
      <label>
        {trans.__('Permissions')}{' '}
        <select
          value={mode}
          onChange={event => void session.set({ mode: event.target.value })}
        >
          {modes.map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        {trans.__('Policy')}{' '}
        <select
          value={policy}
          onChange={event => void session.set({ policy: event.target.value })}
        >
          {policies.map(name => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function Fact(props: { name: string; value: string }): JSX.Element {
  return (
    <div>
      <dt>{props.name}</dt>
      <dd>{props.value}</dd>
    </div>
  );
}

/** Return the colour of a category, that of `%context`: of middle lightness, seen on light and on dark. */
function colour(name: string): string {
  const place = CATEGORIES.indexOf(name);
  return `hsl(${HUES[place >= 0 ? place : HUES.length - 1]}, 55%, 55%)`;
}

function width(part: number, whole: number): number {
  return whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
}
