/** Runs axe-core on a part of the page. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(new URL('../../labextension/package.json', import.meta.url));
const SOURCE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** Fail on every serious or critical problem inside this part of the page. */
export async function noSeriousProblems(page, selector, what = selector) {
  assert.deepEqual(await seriousProblems(page, selector), [], what);
}

/** One line per problem and element. */
export async function seriousProblems(page, selector) {
  if (!(await page.evaluate(() => 'axe' in window))) {
    await page.evaluate(SOURCE);
  }
  return page.evaluate(async selector => {
    // JupyterLab's body has no height and hides overflow, so axe would take all text for invisible
    // and skip contrast
    document.body.style.height = '100vh';
    // only our elements are checked
    const { violations, passes, incomplete } = await window.axe.run({ include: [[selector]] });
    document.body.style.height = '';
    const contrasts = [...passes, ...violations, ...incomplete]
      .filter(({ id }) => id === 'color-contrast')
      .flatMap(({ nodes }) => nodes);
    if (contrasts.length === 0) {
      return [`no text of ${selector} was looked at`];
    }
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .flatMap(({ id, nodes }) =>
        nodes.map(
          node =>
            `${id}: ${node.target.join(' ')}: ${node.failureSummary}\n${node.html.slice(0, 200)}`
        )
      );
  }, selector);
}

export const THEMES = ['JupyterLab Light', 'JupyterLab Dark', 'JupyterLab Dark High Contrast'];

/** Change JupyterLab's theme and wait until it is applied. */
export async function useTheme(page, name) {
  await page.evaluate(
    name => window.jupyterapp.commands.execute('apputils:change-theme', { theme: name }),
    name
  );
  await page.waitForFunction(name => document.body.dataset.jpThemeName === name, name);
  // it hides the page meanwhile
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
}
