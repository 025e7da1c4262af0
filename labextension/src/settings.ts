/** The settings (schema/plugin.json), with defaults where there is no registry. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { NotificationKind } from './messages';
import { DEFAULT_SHARE } from './state';

/** The plugin that owns the settings. */
export const PLUGIN_ID = 'jupyter-gpushare:plugin';

export interface ISettings {
  /** Show notifications about my kernels. */
  readonly notifications: boolean;
  /** Which of them; missing: yes. */
  readonly notificationKinds: { readonly [kind in NotificationKind]?: boolean };
  /** What the request form offers first: GPUs, memory, or the name of a preset. */
  readonly defaultShare: string;
  /** Show launcher cards for notebooks with a share. */
  readonly launcherCards: boolean;
  /** Request the share saved in a notebook when it is opened. */
  readonly useRemembered: boolean;
}

const DEFAULTS: ISettings = {
  notifications: true,
  notificationKinds: {},
  defaultShare: DEFAULT_SHARE,
  launcherCards: true,
  useRemembered: true
};

/** Returns the current settings. */
export type ReadSettings = () => ISettings;

/** Load the settings; defaults until then. `changed` is called after each change. */
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
