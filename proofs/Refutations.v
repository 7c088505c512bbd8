(* False variants of the theorems, each refuted on a small example: a condition dropped, or a bound made
   smaller. They show that the theorems say something, and that the conditions are needed. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint rat zify.
Require Import Datasets Reach LiteralReading Tables BallNorms Features Exchange ExchangeNorms GroupSums.
Require Import GroupSumsExchange ExchangeNormsAttained ExchangeNormsPublishedAttained ExchangeNormsTwoLevels.
Require Import Residuals Pairing CenteredCosts CenteredExchanges LinkedReach LinkedExchange WholeUnit SmallSpaces.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.

(* ---- sums ---- *)

(* WHO ANSWERED MUST BE PUBLIC. Outcomes in {10, ..., 12} or missing, two records: if the number of
   records with an outcome is not exact, a sum moves by 24, and a(u - l) = 4 is false. *)
Theorem sums_false_if_answers_are_private : exists X Y : 'I_2 -> option ('I_1 * int),
  [/\ in_range 10 12 X, in_range 10 12 Y, #|[set i | X i != Y i]| <= 2
    & (\sum_g `|group_sum X g - group_sum Y g| = 24)%R].
Proof.
exists (fun=> Some (ord0, Posz 12)), (fun=> None); split=> //.
- by move=> i z [<-].
- by apply: leq_trans (max_card _) _; rewrite card_ord.
rewrite big_ord_recl big_ord0 /group_sum [X in (_ - X)%R]big_pred0 //.
by rewrite big_mkcond !big_ord_recl big_ord0; vm_compute.
Qed.

Definition sex_and_age := bool_finType.   (* true: sex, false: age *)
Definition sex_or_band (f : sex_and_age) (v : 'I_10) : bool := if f then v == 0 :> nat else 4 < v.
Definition sex_of (tuple : {ffun sex_and_age -> option bool}) : option bool := tuple true.
Definition age_of (r : record sex_and_age [finType of 'I_10]) : int := Posz (r false).

(* OUTCOMES MUST NOT BE PUBLISHED, NOT EVEN COARSELY. Exact totals by sex and by age band (0-4, 5-9), sums
   of age by sex: whoever hands over the band changes age too, and one exchange moves the sums by 250 in
   squared l2, more than 2(u - l)^2 = 162. *)
Theorem exchange_sums_false_for_coarsely_published_outcomes
    (sums := fun (Z : dataset (record sex_and_age [finType of 'I_10]) 3) =>
       group_sum (contribution (@alone _) sex_or_band true sex_of age_of Z)) :
  exists X Y : dataset (record sex_and_age [finType of 'I_10]) 3,
    adjacent (@alone _) (sex_or_band : _ -> _ -> bool_finType) X Y /\
    (\sum_g (sums X g - sums Y g) ^+ 2 = 250)%R.
Proof.
(* sex 0 or 1 and age of the records before, and of the person after *)
pose sex i := nth 0 [:: 0; 1; 1] i; pose age i := nth 0 [:: 0; 9; 9] i.
pose sex' i := nth 0 [:: 1; 1; 0] i; pose age' i := nth 0 [:: 5; 0; 9] i.
pose made (s a : nat -> nat) : dataset (record sex_and_age [finType of 'I_10]) 3 :=
  [ffun i : 'I_3 => [ffun f : bool => inord (if f then s i else a i)]].
pose X := made sex age; pose Y := made sex' age'.
have val_made (s a : nat -> nat) (i : 'I_3) (f : bool) : s i < 10 -> a i < 10 ->
    made s a i f = (if f then s i else a i) :> nat.
  by move=> hs ha; rewrite !ffunE inordK //; case: f.
have XE (i : 'I_3) (f : bool) : X i f = (if f then sex i else age i) :> nat.
  by apply: val_made; case: i => [[|[|[|//]]] h].
have YE (i : 'I_3) (f : bool) : Y i f = (if f then sex' i else age' i) :> nat.
  by apply: val_made; case: i => [[|[|[|//]]] h].
pose c : {ffun sex_and_age -> 'I_3} := [ffun b => if b then inord 2 else inord 1].
have cE b : c b = (if b then 2 else 1) :> nat by rewrite ffunE; case: b; rewrite inordK.
have node_of (Z : dataset (record sex_and_age [finType of 'I_10]) 3) (s a : nat -> nat) (i : 'I_3) (f : bool) :
    (forall (i : 'I_3) (f : bool), Z i f = (if f then s i else a i) :> nat) ->
    sex_or_band f (Z i f) = if f then s i == 0 else 4 < a i.
  by move=> hZ; rewrite /sex_or_band hZ; case: f.
have hc : carriers (tuple_in (@alone _) (sex_or_band : _ -> _ -> bool_finType)) X ord0 (Y ord0) c.
  apply/carriersP=> b _; apply/eqP/tuple_inP=> f; rewrite /alone => ->.
  by rewrite (node_of X sex age) // (node_of Y sex' age') // cE; case: b.
exists X, Y; split.
  apply/orP; left; apply/arisesP; exists ord0, (Y ord0), c; split=> //.
    exact: carriers_inhabited hc.
  apply/ffunP=> i; case: (eqVneq i ord0) => [->|ni]; first by rewrite exchange_person.
  apply/ffunP=> f; apply: val_inj; rewrite /= exchange_other // /moves.
  rewrite (node_of X sex age) // (node_of Y sex' age') // /alone -val_eqE /= cE YE.
  case: i ni => [[|[|[|//]]] h] ni; case: f => //=; rewrite XE //.
have sumE (Z : dataset (record sex_and_age [finType of 'I_10]) 3) (s a : nat -> nat) (g : bool) :
    (forall (i : 'I_3) (f : bool), Z i f = (if f then s i else a i) :> nat) ->
    sums Z g = (\sum_(i < 3) (if (s i == 0%N) == g then Posz (a i) else 0))%R.
  move=> hZ; rewrite /sums group_sumE; apply: eq_bigr => i _.
  by rewrite /sex_of ffunE eqxx (node_of Z s a) // (inj_eq (@Some_inj _)) /age_of hZ.
rewrite big_bool /= !(sumE X sex age) // !(sumE Y sex' age') //.
by rewrite !big_ord_recl !big_ord0; vm_compute.
Qed.

(* ---- parity ---- *)

(* PARITY NEEDS TWO VALUES. The three-cycle of a 3 x 3 table has zero margins and positive part 3. *)
Theorem parity_false_for_three_by_three : exists m : 'I_3 * 'I_3 -> int,
  [/\ forall r, (\sum_j m (r, j) = 0)%R, forall j, (\sum_r m (r, j) = 0)%R & odd (positive_part m)].
Proof.
pose m (c : 'I_3 * 'I_3) : int :=
  (Posz (c.1 == c.2) - Posz ((c.1 + 1) %% 3 == c.2 :> nat))%R.
exists m; split.
- by case=> [[|[|[|//]]] h]; rewrite !big_ord_recl big_ord0; vm_compute.
- by case=> [[|[|[|//]]] h]; rewrite !big_ord_recl big_ord0; vm_compute.
rewrite /positive_part (eq_bigr (fun c => positive m (c.1, c.2))); last by case.
by rewrite -(pair_bigA _ (fun r j => positive m (r, j))) !big_ord_recl !big_ord0; vm_compute.
Qed.

(* ---- linked files ---- *)

(* SOMEBODY HAS TO MAKE ROOM. Two units with exactly one member each, and nothing else published: moving
   one member changes two, so 1 + (number of blocks with an own feature) members do not suffice. *)
Theorem room_maker_needed (F := [finType of 'I_1]) (V := bool_finType) (N := unit_finType)
    (H := bool_finType) (P := unit_finType) (B := unit_finType)
    (block := fun _ : F => tt : B) (node := fun (_ : F) (_ : V) => tt : N)
    (place := fun _ : H => tt : P)
    (X : dataset (member F V H) 2 := [ffun i => ([ffun=> false], i == ord0)])
    (target : member F V H := ([ffun=> false], false)) :
  [/\ sizes_allowed 1 (fun=> 1) X, inhabited (published block node place tt) X target,
      #|own_blocks block node| = 0
    & forall Y : dataset (member F V H) 2, sizes_allowed 1 (fun=> 1) Y -> Y ord0 = target ->
        1 < distance X Y].
Proof.
split.
- apply/forallP=> h; rewrite /unit_size -sum1_card big_mkcond !big_ord_recl big_ord0.
  by rewrite !inE !ffunE; case: h.
- apply/inhabitedP=> -[]; exists ord0; apply/eqP/publishedP.
  by rewrite ffunE.
- apply/eqP; rewrite cards_eq0; apply/eqP/setP=> b; rewrite !inE.
  by apply/existsP=> -[u /existsP[v /existsP[w]]]; rewrite eqxx andbF.
move=> Y /forallP sizes Y0; rewrite ltnNge; apply/negP=> near.
have c0 : ord0 \in changed X Y by rewrite inE Y0 ffunE xpair_eqE /= andbF.
have Y1 : Y ord_max = X ord_max.
  apply/eqP; apply: contraT => ne; have c1 : ord_max \in changed X Y by rewrite inE eq_sym.
  by have := card_le1_eqP near _ _ c0 c1.
have := sizes true; rewrite /unit_size => /andP[+ _]; apply/negP; rewrite -leqNgt leqn0 cards_eq0.
apply/eqP/setP=> i; rewrite !inE; case: (unliftP ord0 i) => [j ->|->]; last by rewrite Y0.
have -> : lift ord0 j = ord_max by apply: val_inj; case: j => [[]].
by rewrite Y1 ffunE.
Qed.

(* ---- exchange norms ---- *)

(* EVERYTHING MUST BE PUBLISHED. Two blocks with two levels each, and a feature that is not published: the norm is 8,
   not 4. (With three levels of both blocks it is 6, [two_blocks_attain_6]; with a third block of two
   levels 12, [three_blocks_attain_12].) *)
Theorem norm_4_false_with_an_unpublished_feature :
  exists X Y : dataset (record [finType of option bool] bool_finType) 3,
  [/\ adjacent (@own_block bool_finType bool_finType) (@leaf_or_nothing bool_finType bool_finType) X Y,
      #|touched (@own_block bool_finType bool_finType) (@leaf_or_nothing bool_finType bool_finType)
          (@all_leaves _ bool_finType) X| = 2,
      forall b, levels (@own_block bool_finType bool_finType) (@all_leaves _ bool_finType) X b <= 2
    & l2_squared (cells (@all_leaves _ bool_finType) X) (cells (@all_leaves _ bool_finType) Y) = Posz 8].
Proof.
have := @exchange_norms_attained bool_finType bool_finType false true isT; rewrite card_bool.
move=> /(_ isT)[X [Y [h1 h2 _ h4]]]; exists X, Y; split=> // b.
pose made (v : bool) : {ffun option bool -> option bool} := [ffun e => if e == b then Some v else None].
have two : #|[set made v | v in predT]| <= 2 by rewrite -card_bool; apply: leq_imset_card.
apply: leq_trans two; apply: subset_leq_card.
apply/subsetP=> s /imsetP[i _ ->]; apply/imsetP; exists (X i b) => //.
by apply/ffunP=> e; rewrite !ffunE /own_block; case: eqP => [->|].
Qed.

(* ---- centered costs ---- *)

(* Flat features with two levels, all of them in the residual. *)
Definition flat (F : finType) (f : F) (v : bool) := tt.
Definition half : rat := (1 / 2%:R)%R.

Lemma kernel_of_bits (F : finType) (f : F) v w : kernel rat_realFieldType (@flat F) f v w = (if v == w then half else - half)%R.
Proof.
rewrite /kernel /siblings (_ : [set _ | _] = setT); last by apply/setP=> u; rewrite !inE.
by rewrite cardsT card_bool; case: v; case: w.
Qed.

(* TWO FEATURES ARE NEEDED, and so is the term with the product of both cells: for a residual of one feature with
   two levels a single record costs 2, not 2 (1 - 1/2) = 1. *)
Theorem centered_cost_below_two_false_for_one_feature :
  squared_norm (residual (families (@flat unit_finType) [:: tt])
    (fun c => ((single_move [ffun=> false] [ffun=> true] c)%:~R : rat)%R)) = 2%:R%R.
Proof.
rewrite centered_single_move //; have one (h : unit -> rat) : (\prod_f h f = h tt)%R.
  by rewrite (big_pred1 tt) // => -[].
by rewrite !one /shared /= !kernel_of_bits !ffunE; apply/eqP; vm_compute.
Qed.

(* CARRIERS COST MORE THAN THEIR SHARE. With two features of two levels, the person goes from 00 to 10 and the carrier
   from 11 to 01. Each alone costs 1; together they cost 4: neither is the cost of an exchange at most the
   sum of the costs of its records, nor at most 4 (1 - 1/2) if only one more feature is seen. *)
Theorem exchange_cost_above_sum_of_records (before := fun i : 'I_2 => [ffun=> i == ord_max] : {ffun bool -> bool})
    (after := fun i : 'I_2 => [ffun f : bool => (i == ord_max) (+) f] : {ffun bool -> bool}) :
  centered_cost rat_realFieldType (@flat bool_finType) [:: true; false] before after = 4%:R%R /\
  forall i, squared_norm (residual (families (@flat bool_finType) [:: true; false])
    (fun c => ((single_move (before i) (after i) c)%:~R : rat)%R)) = 1%R.
Proof.
have two (h : bool -> rat) : (\prod_f h f = h true * h false)%R by rewrite big_bool.
split; last first.
  by move=> i; rewrite centered_single_move // !two /shared /= !kernel_of_bits !ffunE; case: (i == ord_max);
    apply/eqP; vm_compute.
rewrite (@centered_cost_of_records _ _ _ _ _ _ _ _ setT) //; last by move=> i; rewrite inE.
have sum2 (h : 'I_2 -> rat) : (\sum_(i in [set: 'I_2]) h i = h ord0 + h ord_max)%R.
  rewrite (eq_bigl predT) ?big_ord_recl ?big_ord0 ?addr0; last by move=> i; rewrite inE.
  by congr (_ + h _)%R; apply: val_inj.
by rewrite !sum2 /common !two /shared /= !kernel_of_bits !ffunE; apply/eqP; vm_compute.
Qed.

(* n records with one feature of two levels go from the one level to the other. *)
Definition bit := [finType of {ffun unit -> bool}].
Definition all_are n (v : bool) : dataset bit n := [ffun=> [ffun=> v]].

Section OneBit.
Variable K : rcfType.
Let fams := fun _ : unit => families (@flat unit_finType) [:: tt].
Let one := fun _ : unit => 1%R : K.

Lemma same_or_two (x y : bit) : (common K (@flat unit_finType) [:: tt] x x
    + common K (@flat unit_finType) [:: tt] y y - common K (@flat unit_finType) [:: tt] x y *+ 2 =
    (x != y)%:R *+ 2)%R.
Proof.
have all (h : unit -> K) : (\prod_f h f = h tt)%R by rewrite (big_pred1 tt) // => -[].
have half v w : kernel K (@flat unit_finType) tt v w = ((v == w)%:R - 2%:R^-1)%R.
  rewrite /kernel /siblings (_ : [set _ | _] = setT); last by apply/setP=> u; rewrite !inE.
  by rewrite cardsT card_bool mul1r.
rewrite /common !all /shared /= !half !eqxx; case: (eqVneq x y) => [->|ne].
  by rewrite eqxx mul0rn -mulr2n subrr.
have -> : (x tt == y tt) = false.
  by apply: contraNF ne => /eqP e; apply/eqP/ffunP=> -[].
by rewrite sub0r mulNrn opprK mulr2n addrACA -mulr2n subrK.
Qed.

Lemma bit_cost n : cost (fun _ => all_are n true) (fun _ => all_are n false) fams one = (2%:R *+ (n * n))%R.
Proof.
rewrite /cost (big_pred1 tt) => [|[]//]; rewrite divr1.
rewrite -[LHS]/(centered_cost K (@flat unit_finType) [:: tt] (all_are n true) (all_are n false)).
rewrite (@centered_cost_of_records _ _ _ _ _ _ _ _ setT) //; last by move=> i; rewrite inE.
rewrite (eq_bigr (fun=> 2%:R *+ n)%R); first by rewrite sumr_const cardsT card_ord mulrnA.
move=> i _; rewrite (eq_bigr (fun=> 2%:R)%R); first by rewrite sumr_const cardsT card_ord.
move=> j _; rewrite !ffunE -addrA -opprD.
rewrite [X in (_ - (_ + X))%R]common_sym -mulr2n same_or_two.
by rewrite (_ : _ != _) //; apply/eqP=> /ffunP/(_ tt); rewrite !ffunE.
Qed.

Lemma bit_single (x y : bit) : single_cost (fun _ r => r) fams one x y = ((x != y)%:R *+ 2)%R.
Proof.
by rewrite /single_cost (big_pred1 tt) => [|[]//]; rewrite divr1 centered_single_move // -same_or_two.
Qed.

(* THE COST OF A RECORDS GROWS WITH a^2. Two records of one feature with two levels, nothing published: each alone
   costs at most 2, both together 8 = 2^2 times 2. So a times the worst single cost is not enough. *)
Theorem cost_of_move_needs_square (X := all_are 2 true) (Y := all_are 2 false) :
  [/\ same_totals (fun (_ : bit) (_ : unit) => tt) X Y, distance X Y <= 2,
      forall x y, (single_cost (fun _ r => r) fams one x y <= 2%:R)%R
    & cost (fun _ => X) (fun _ => Y) fams one = 8%:R%R].
Proof.
split.
- apply: (@rearranged_totals _ _ _ _ _ _ _ (fun=> 1%g)) => i b //.
- by apply: distance_le_n.
- by move=> x y; rewrite bit_single; case: (x != y); rewrite ?mul0rn ?ler0n.
by rewrite bit_cost -mulr_natl -natrM.
Qed.

(* TOTALS HAVE TO AGREE. If the feature itself is published, no single record that keeps its published value costs
   anything, but a record that changes it costs 2. *)
Theorem cost_of_move_needs_totals (X := all_are 1 true) (Y := all_are 1 false) :
  [/\ distance X Y <= 1,
      forall x y : bit, x tt = y tt -> single_cost (fun _ r => r) fams one x y = 0%R
    & cost (fun _ => X) (fun _ => Y) fams one = 2%:R%R].
Proof.
split; first exact: distance_le_n; last by rewrite bit_cost.
move=> x y e; rewrite bit_single (_ : x = y) ?eqxx ?mul0rn //.
by apply/ffunP=> -[].
Qed.
End OneBit.

(* ---- linked files, one member ---- *)

(* Members have one feature with two levels that is not published. *)
Definition nothing (f : unit) (v : bool) := tt.
Definition only_block (f : unit) := tt.
Definition person_of (v : bool) : record unit_finType bool_finType := [ffun=> v].

Lemma nothing_published (H P : finType) (place : H -> P) (r r' : member unit_finType bool_finType H) b :
  place r.2 = place r'.2 ->
  published only_block nothing place tt r b = published only_block nothing place tt r' b.
Proof. by move=> e; apply/eqP/publishedP; split=> //; apply/eqP/tuple_inP. Qed.

(* CONSECUTIVE SIZES. Two units with one member each, nothing published: a member moves, and the sizes are 0 and 2. In
   a table of even and odd sizes that is 8 in squared l2, not 6; and two sizes change. *)
Theorem unit_norm_needs_consecutive_sizes
    (X := [ffun i => (person_of false, i == ord0)] : dataset (member unit_finType bool_finType bool_finType) 2)
    (Y := [ffun i => (person_of false, false)] : dataset (member unit_finType bool_finType bool_finType) 2)
    (cells := fun (Z : dataset (member unit_finType bool_finType bool_finType) 2) h => (tt, odd (unit_size Z h))) :
  one_member only_block nothing (fun _ : bool => tt) tt X Y /\ l2_squared (cells X) (cells Y) = Posz 8.
Proof.
have sizeX h : unit_size X h = 1.
  rewrite /unit_size -sum1_card big_mkcond !big_ord_recl big_ord0 !inE !ffunE.
  by case: h.
have sizeY h : unit_size Y h = if h then 0 else 2.
  rewrite /unit_size -sum1_card big_mkcond !big_ord_recl big_ord0 !inE !ffunE.
  by case: h.
split.
  exists ord0, (person_of false), false, [ffun=> ord_max], None; split=> //.
    by apply/carriersP=> b _; apply: nothing_published.
  apply/ffunP=> i; rewrite !ffunE; case: (eqVneq i ord0) => //= ni.
  by congr pair; apply/ffunP=> e; rewrite !ffunE.
have cX h : cells X h = (tt, true) by rewrite /cells sizeX.
have cY h : cells Y h = (tt, false) by rewrite /cells sizeY; case: h.
rewrite l2_squared_apart => [|h h']; last by rewrite cX cY.
rewrite (eq_bigr (fun=> 4)); first by rewrite big_bool.
by move=> h _; rewrite big_bool !cX !cY.
Qed.

(* MEMBERS OF UNITS MOVE FURTHER. Published is a place: one of unit u, another one of units v and w; the table shows w
   differently. The person moves from u to v and becomes as the carrier is, who moves from w to u. One
   other record changes, and the squared l2 distance is 6, not 1 + 1 + 2 = 4. *)
Theorem one_member_norm_exceeds_exchange_norm (u := None) (v := Some false) (w := Some true)
    (place := fun h : option bool => h != None) (show := fun h : option bool => h == w)
    (X := [ffun i => if i == ord0 then (person_of false, u) else (person_of true, w)]
       : dataset (member unit_finType bool_finType [finType of option bool]) 2)
    (Y := [ffun i => (person_of true, if i == ord0 then v else u)]
       : dataset (member unit_finType bool_finType [finType of option bool]) 2)
    (cells := member_cells (fun (_ : unit) (leaf : bool) => leaf) show) :
  [/\ one_member only_block nothing (place : [finType of option bool] -> bool_finType) tt X Y, distance X Y <= 2
    & l2_squared (cells X) (cells Y) = Posz 6].
Proof.
have other (i : 'I_2) : i != ord0 -> i = ord_max.
  by case: i => [[|[|//]] h] // _; apply: val_inj.
split; last first.
- have shown (z : bool) h : member_cell (fun (_ : unit) (leaf : bool) => leaf) show (person_of z, h) = ([ffun=> z], h == w).
    by rewrite /member_cell /=; congr pair; apply/ffunP=> e; rewrite !ffunE.
  have ne : ([ffun=> false] == [ffun=> true] :> {ffun unit -> bool}) = false.
    by apply/eqP=> /ffunP/(_ tt); rewrite !ffunE.
  have cX i : cells X i = if i == ord0 then ([ffun=> false], false) else ([ffun=> true], true).
    by rewrite /cells /member_cells ffunE; case: (i == ord0); rewrite shown.
  have cY i : cells Y i = ([ffun=> true], false).
    by rewrite /cells /member_cells ffunE shown; case: (i == ord0).
  rewrite l2_squared_apart => [|i j]; last by rewrite cX cY; case: (i == ord0); rewrite xpair_eqE ?ne ?andbF.
  rewrite !big_ord_recl !big_ord0 !cX !cY /= !xpair_eqE !eqxx /= ne [[ffun=> true] == _]eq_sym ne.
  by [].
- exact: distance_le_n.
exists ord0, (person_of true), v, [ffun=> ord_max], None; split=> //.
  by apply/carriersP=> b _; apply: nothing_published; rewrite !ffunE.
apply/ffunP=> i; rewrite !ffunE; case: (eqVneq i ord0) => //= /other ->.
by rewrite /handed ?ffunE /=; congr pair; apply/ffunP=> e; rewrite !ffunE.
Qed.

(* ---- linked files, a whole unit ---- *)

(* WHOLE UNITS NEED CARRIERS. Two units with one member each, one exact total: for the member of one unit to change,
   the other one must, so m = 1 member does not suffice. *)
Theorem whole_unit_needs_carriers (leaf := fun (_ : unit) (v : bool) => v)
    (X := [ffun i => person_of (i == ord_max)] : dataset (record unit_finType bool_finType) 2) :
  forall Y, same_totals (tuple_in only_block leaf) X Y -> Y ord0 = person_of true -> 1 < distance X Y.
Proof.
move=> Y /same_totalsP same Y0; rewrite ltnNge; apply/negP=> near.
have c0 : ord0 \in changed X Y.
  by rewrite inE Y0 ffunE; apply/eqP=> /ffunP/(_ tt); rewrite !ffunE.
have Ymax : Y ord_max = person_of true.
  have : ord_max \notin changed X Y.
    by apply/negP=> c1; have := card_le1_eqP near _ _ c0 c1.
  by rewrite inE negbK ffunE eqxx => /eqP <-.
have : 0 < total (tuple_in only_block leaf) X tt (tuple_in only_block leaf (person_of false) tt).
  by rewrite total_gt0; apply/existsP; exists ord0; rewrite ffunE.
rewrite same total_gt0 => /existsP[i /tuple_inP/(_ tt erefl)].
have -> : Y i = person_of true.
  case: (unliftP ord0 i) => [j ->|-> //]; rewrite -Ymax; congr (Y _); apply: val_inj.
  by case: j => [[]].
by rewrite !ffunE.
Qed.

(* OTHER UNITS CHANGE THEIR SIZE. Two units, one member each, no total of own features: if one unit gets two members,
   both change their size, so 1 + q_u = 1 unit does not suffice. *)
Theorem whole_unit_resizes_others (u := [ffun i => i] : {ffun 'I_2 -> 'I_2}) :
  allowed 0 2 u /\ forall w : {ffun 'I_2 -> 'I_2}, size_in w ord0 = 2 ->
    #|[set g | size_in u g != size_in w g]| = 2.
Proof.
have one g : size_in u g = 1.
  apply: etrans (cards1 g); apply: eq_card => i; by rewrite !inE ffunE.
split=> [g|w two]; first by rewrite one.
have sum := sizes_sum w; rewrite !big_ord_recl big_ord0 two addn0 in sum.
rewrite -[RHS]card_ord -[RHS]cardsT; congr #|pred_of_set _|; apply/setP=> g; rewrite !inE one.
case: (unliftP ord0 g) => [j ->|->]; last by rewrite two.
have -> : lift ord0 j = lift ord0 ord0 by congr (lift _ _); apply: val_inj; case: j => [[]].
by case: sum => ->.
Qed.

(* ---- lists of small types ---- *)
Definition bits := [:: false; true].
Definition pairs := [seq (a, b) | a <- bits, b <- bits].
Definition triples := [seq (c, b) | c <- pairs, b <- bits].
Definition quadruples := [seq (c, b) | c <- triples, b <- bits].
Definition thirds := [:: None; Some false; Some true].

Lemma all_bits (b : bool) : b \in bits. Proof. by case: b. Qed.
Lemma all_pairs (r : bool * bool) : r \in pairs. Proof. by case: r => [[] []]. Qed.
Lemma all_triples (r : bool * bool * bool) : r \in triples. Proof. by case: r => [[[] []] []]. Qed.
Lemma all_quadruples (r : bool * bool * bool * bool) : r \in quadruples.
Proof. by case: r => [[[[] []] []] []]. Qed.
Lemma all_thirds (b : option bool) : b \in thirds. Proof. by case: b => [[]|]. Qed.

(* ---- records and margins of the examples ---- *)
Definition record2 := [finType of bool * bool].
Definition record3 := [finType of bool * bool * bool].
Definition record4 := [finType of bool * bool * bool * bool].
Definition blocks2 := [finType of bool].
Definition blocks3 := [finType of option bool].

(* Two features A and B, both totals exact. *)
Definition two_margins (r : record2) (b : blocks2) : bool := if b then r.1 else r.2.
(* Three features, all three totals exact. *)
Definition three_margins (r : record3) (b : blocks3) : bool :=
  let: (x, y, z) := r in if b is Some c then (if c then x else y) else z.
(* Margins AB and BC of three features. *)
Definition margins_AB_BC (r : record3) (b : blocks2) : record2 :=
  let: (x, y, z) := r in if b then (x, y) else (y, z).
(* Margins AB, BC and AC of three features: a cycle. *)
Definition margins_AB_BC_AC (r : record3) (b : blocks3) : record2 :=
  let: (x, y, z) := r in if b is Some c then (if c then (x, y) else (y, z)) else (x, z).
(* Margins AB, BC and CD of four features: a chain. *)
Definition margins_AB_BC_CD (r : record4) (b : blocks3) : record2 :=
  let: (x, y, z, u) := r in if b is Some c then (if c then (x, y) else (y, z)) else (z, u).
(* A 4 x 4 table in which only the cells (i, i) and (i, i + 1) are possible: a record is its row i and
   a bit that says whether the column is i or i + 1. *)
Definition next (i : record2) : record2 := (i.1 (+) i.2, ~~ i.2).
Definition cyclic_zeros (r : record3) (b : blocks2) : record2 :=
  if b then r.1 else if r.2 then next r.1 else r.1.

Notation f := false. Notation t := true.

(* TWO READINGS. For margins (2,1) and (2,1) the worst case is 3; the literal reading is 2, not 1. *)
Theorem readings_differ (X := dataset_of 3 (f, f) [:: (f, f); (f, t); (t, f)]) :
  [/\ semi_adjacency two_margins X = 3, literal_suffices two_margins X 2
    & ~~ literal_suffices two_margins X 1].
Proof.
split.
- by apply: (@listing_decides_number record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by rewrite (@listing_decides_literal record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by rewrite (@listing_decides_literal record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
Qed.

(* a(t) IS NOT ALWAYS q + 1. Margins (2,2) and (2,2) need 2 records, not 3; three binary features with
   margins (1,2) need 3, not 4. *)
Theorem fewer_than_q_plus_1 :
  semi_adjacency two_margins (dataset_of 4 (f, f) [:: (f, f); (f, t); (t, f); (t, t)]) = 2 /\
  semi_adjacency three_margins (dataset_of 3 (f, f, f) [:: (t, f, f); (f, t, f); (f, f, t)]) = 3.
Proof.
split.
- by apply: (@listing_decides_number record2 blocks2 _ _ _ pairs bits _ all_pairs all_bits); vm_compute.
- by apply: (@listing_decides_number record3 blocks3 _ _ _ triples thirds _ all_triples all_thirds); vm_compute.
Qed.

(* REACH NEEDS INDEPENDENT BLOCKS. With structural zeros on a cycle of length 4, two blocks need 4
   records: a(t) <= q + 1 is false. *)
Theorem reach_false_with_structural_zeros
    (X := dataset_of 4 (f, f, f) [:: (f, f, f); (f, t, f); (t, f, f); (t, t, f)]) :
  #|active cyclic_zeros X| + 1 < semi_adjacency cyclic_zeros X.
Proof.
apply: (@leq_ltn_trans 3).
  by have : #|active cyclic_zeros X| <= #|blocks2| := max_card _; rewrite card_bool addn1 !ltnS.
apply: (@listing_refutes record3 blocks2 _ _ _ triples bits _ all_triples all_bits _ _ 0 (f, f, t));
  by vm_compute.
Qed.

(* THE NUMBER OF CLIQUES ALONE IS NOT ENOUGH. AB, BC needs more than 2 records and AB, BC, CD more than 3:
   the bound "number of cliques + 1" is attained. *)
Theorem cliques_alone_false :
  2 < semi_adjacency margins_AB_BC (dataset_of 3 (f, f, f) [:: (f, f, f); (f, f, t); (t, f, f)]) /\
  3 < semi_adjacency margins_AB_BC_CD
    (dataset_of 4 (f, f, f, f) [:: (f, f, f, f); (f, f, f, t); (f, t, f, f); (t, t, t, f)]).
Proof.
split.
- apply: (@listing_refutes record3 blocks2 _ _ _ triples bits _ all_triples all_bits _ _ 0 (t, f, t));
    by vm_compute.
- apply: (@listing_refutes record4 blocks3 _ _ _ quadruples thirds _ all_quadruples all_thirds _ _
            0 (t, t, f, t)); by vm_compute.
Qed.

(* THE TREE IS NEEDED. The margins AB, BC and AC form a cycle: some totals need 5 records, more than the
   number of cliques + 1. *)
Theorem decomposable_bound_false_for_a_cycle :
  4 < semi_adjacency margins_AB_BC_AC
    (dataset_of 5 (f, f, f) [:: (f, f, f); (f, f, t); (f, t, f); (t, f, f); (t, t, t)]).
Proof.
apply: (@listing_refutes record3 blocks3 _ _ _ triples thirds _ all_triples all_thirds _ _ 0 (f, t, t));
  by vm_compute.
Qed.

(* THE LITERAL READING CAN EXCEED 2 for margins that overlap: AB, BC, CD with 0010, 1001, 1100 gives 3. *)
Theorem literal_bound_false_for_overlaps
    (X := dataset_of 3 (f, f, f, f) [:: (f, f, t, f); (t, f, f, t); (t, t, f, f)]) :
  ~~ literal_suffices margins_AB_BC_CD X 2.
Proof.
by rewrite (@listing_decides_literal record4 blocks3 _ _ _ quadruples thirds _ all_quadruples
              all_thirds); vm_compute.
Qed.
