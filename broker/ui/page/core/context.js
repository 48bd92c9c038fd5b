// What every page may ask for: the session, and a dialog on top of the page.
import { createContext, useContext } from "./view.js";

export const App = createContext(null);

/** @returns {{session: import("./session.js").Session, show: (dialog: any) => void,
 *   say: (text: string) => void, follows: boolean}} */
export const useApp = () => useContext(App);
