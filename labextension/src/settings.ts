/** What a person may set (schema/plugin.json), with its defaults where there is no registry. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';

/** The plugin that the settings belong to. */
export const PLUGIN_ID = 'jupyter-gpushare:plugin';

export interface ISettings {
  /** Tell in notifications what happened to my kernels. */
  readonly notifications: boolean;
  /** Cards with a share in the launcher. */
  readonly launcherCards: boolean;
  /** Ask at opening for the share that a notebook remembers. */
  readonly useRemembered: boolean;
}

const DEFAULTS: ISettings = { notifications: true, launcherCards: true, useRemembered: true };

/** The settings now, read again at each call. */
export type ReadSettings = () => ISettings;

/** Loads them; until they are there, and without a registry, the defaults hold. `changed` is called after each change. */
export function followSettings(
  registry: ISettingRegistry | null,
  changed: () => void = () => undefined
): ReadSettings {
  let now = DEFAULTS;
  void registry?.load(PLUGIN_ID).then(settings => {
    const read = () => {
      now = { ...DEFAULTS, ...(settings.composite as Partial<ISettings>) };
      changed();
    };
    read();
    settings.changed.connect(read);
  });
  return () => now;
}
